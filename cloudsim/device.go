package cloudsim

import "fmt"

// ReportDevices lists all disks for which the machine of an instance currently has a device. It
// also lists each disk for which the hypervisor could not add or remove the device. The hypervisor
// that runs the machine sends this report after each change of the devices.
type ReportDevices struct {
	Devices []DeviceReport `json:"devices" maxItems:"64" doc:"Disks that are devices of the machine now, and disks whose device the hypervisor could not add or remove"`
}

// DeviceReport describes the device of one disk on the machine of an instance.
type DeviceReport struct {
	Disk  DiskID `json:"disk" maxLength:"128" example:"disk-000001"`
	Ready bool   `json:"ready" doc:"Whether the machine has the device"`
	Error string `json:"error,omitempty" maxLength:"1024" doc:"Reason why the hypervisor could not add or remove the device. The hypervisor tries again"`
}

// Limits of a ReportDevices request.
const (
	MaxDeviceReports = 64   // disks
	MaxDeviceError   = 1024 // bytes of an error
)

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r ReportDevices) Validate() error {
	var c checks
	if len(r.Devices) > MaxDeviceReports {
		c.addf("devices", "must have at most %d items, got %d", MaxDeviceReports, len(r.Devices))
		return c.err()
	}
	seen := map[DiskID]bool{}
	for i, d := range r.Devices {
		field := fmt.Sprintf("devices[%d].disk", i)
		c.reference(field, string(d.Disk))
		if seen[d.Disk] {
			c.addf(field, "is a duplicate (%s): report each disk once", d.Disk)
		}
		seen[d.Disk] = true
		if len(d.Error) > MaxDeviceError {
			c.addf(fmt.Sprintf("devices[%d].error", i), "must have at most %d bytes, got %d: shorten the reason", MaxDeviceError, len(d.Error))
		}
	}
	return c.err()
}

// Of returns the report about one disk. If r does not contain the disk, the result is the zero
// value. The zero value means that the machine has no device for the disk.
func (r ReportDevices) Of(id DiskID) DeviceReport {
	for _, d := range r.Devices {
		if d.Disk == id {
			return d
		}
	}
	return DeviceReport{}
}
