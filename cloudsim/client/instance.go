package client

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// CreateInstance begins to create an instance and returns the instance. To wait for the end of
// the creation, call WaitOperation with the instance's field Operation.
func (c *Client) CreateInstance(ctx context.Context, req cloudsim.CreateInstance) (cloudsim.Instance, error) {
	return call[cloudsim.Instance](ctx, c, "POST", "/v1/instances", req)
}

// GetInstance returns an instance.
func (c *Client) GetInstance(ctx context.Context, id cloudsim.InstanceID) (cloudsim.Instance, error) {
	return call[cloudsim.Instance](ctx, c, "GET", "/v1/instances/"+seg(id), nil)
}

// ListInstances returns one page of instances.
func (c *Client) ListInstances(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Instance], error) {
	return call[cloudsim.List[cloudsim.Instance]](ctx, c, "GET", "/v1/instances"+listQuery(o), nil)
}

// UpdateInstance replaces an instance's labels. If rev is not 0 and the instance has changed since
// the revision rev, UpdateInstance returns Stale.
func (c *Client) UpdateInstance(ctx context.Context, id cloudsim.InstanceID, req cloudsim.UpdateInstance, rev uint64) (cloudsim.Instance, error) {
	return call[cloudsim.Instance](ctx, c, "PUT", "/v1/instances/"+seg(id), req, ifMatch(rev))
}

// StartInstance begins to start an instance. It returns Conflict if the state of the
// instance does not allow a start.
func (c *Client) StartInstance(ctx context.Context, id cloudsim.InstanceID) (cloudsim.Instance, error) {
	return call[cloudsim.Instance](ctx, c, "POST", "/v1/instances/"+seg(id)+"/start", nil)
}

// StopInstance begins to stop an instance. It returns Conflict if the state of the
// instance does not allow a stop.
func (c *Client) StopInstance(ctx context.Context, id cloudsim.InstanceID) (cloudsim.Instance, error) {
	return call[cloudsim.Instance](ctx, c, "POST", "/v1/instances/"+seg(id)+"/stop", nil)
}

// RebootInstance begins to reboot an instance. It returns Conflict if the state of the
// instance does not allow a reboot.
func (c *Client) RebootInstance(ctx context.Context, id cloudsim.InstanceID) (cloudsim.Instance, error) {
	return call[cloudsim.Instance](ctx, c, "POST", "/v1/instances/"+seg(id)+"/reboot", nil)
}

// CrashInstance simulates a power failure of a running instance. The state of the instance
// stays "running" until the next operation on the instance, for example a reboot.
// CrashInstance returns Conflict if the instance is not running.
func (c *Client) CrashInstance(ctx context.Context, id cloudsim.InstanceID) (cloudsim.Instance, error) {
	return call[cloudsim.Instance](ctx, c, "POST", "/v1/instances/"+seg(id)+"/crash", nil)
}

// ReportDevices reports all devices that the machine of an instance has now. After the first
// report, the cloud completes the attachment or detachment of a disk of this instance only if a
// report confirms the change. For an attachment, the report must say that the machine has the
// disk's device. For a detachment, the report must say that the machine no longer has the device.
// If the cloud waits longer than a minute for the report, the operation fails.
func (c *Client) ReportDevices(ctx context.Context, id cloudsim.InstanceID, req cloudsim.ReportDevices) (cloudsim.Instance, error) {
	return call[cloudsim.Instance](ctx, c, "PUT", "/v1/instances/"+seg(id)+"/devices", req)
}

// ForgetDevices tells the cloud not to expect more reports about the devices of an
// instance's machine. The cloud then completes attachments and detachments without a report.
func (c *Client) ForgetDevices(ctx context.Context, id cloudsim.InstanceID) (cloudsim.Instance, error) {
	return call[cloudsim.Instance](ctx, c, "DELETE", "/v1/instances/"+seg(id)+"/devices", nil)
}

// DeleteInstance begins to terminate an instance and returns the instance. A second call during the
// termination returns the instance again. After the termination, a call returns NotFound.
func (c *Client) DeleteInstance(ctx context.Context, id cloudsim.InstanceID) (cloudsim.Instance, error) {
	return call[cloudsim.Instance](ctx, c, "DELETE", "/v1/instances/"+seg(id), nil)
}
