package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// AnnounceNotice tells an instance what the cloud is going to do to it, and
// replaces a notice of the same type. It happens when the time has come.
func (c *Client) AnnounceNotice(ctx context.Context, id cloudsim.InstanceID, req cloudsim.CreateNotice) (cloudsim.Instance, error) {
	return call[cloudsim.Instance](ctx, c, "POST", "/v1/instances/"+seg(id)+"/notices", req)
}

// WithdrawNotice takes a notice back; NotFound if there is none of this type.
func (c *Client) WithdrawNotice(ctx context.Context, id cloudsim.InstanceID, t cloudsim.NoticeType) (cloudsim.Instance, error) {
	return call[cloudsim.Instance](ctx, c, "DELETE", "/v1/instances/"+seg(id)+"/notices/"+seg(t), nil)
}
