package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// AnnounceNotice announces to an instance that the cloud will reboot or terminate this instance. A
// new notice replaces an existing notice of the same type. If the state of the instance permits
// the action at the announced time, the cloud performs the action. Otherwise the cloud only removes
// the notice. AnnounceNotice returns Conflict if the instance is terminating.
func (c *Client) AnnounceNotice(ctx context.Context, id cloudsim.InstanceID, req cloudsim.CreateNotice) (cloudsim.Instance, error) {
	return call[cloudsim.Instance](ctx, c, "POST", "/v1/instances/"+seg(id)+"/notices", req)
}

// WithdrawNotice withdraws a notice. It returns NotFound if there is no notice of this type.
func (c *Client) WithdrawNotice(ctx context.Context, id cloudsim.InstanceID, t cloudsim.NoticeType) (cloudsim.Instance, error) {
	return call[cloudsim.Instance](ctx, c, "DELETE", "/v1/instances/"+seg(id)+"/notices/"+seg(t), nil)
}
