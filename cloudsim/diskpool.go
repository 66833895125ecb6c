package cloudsim

// DiskPool is the capacity of a zone for disks of one type. The pool's name is
// also its id. The name consists of the zone, a dot and the type, e.g.
// "sim-1a.fast". A regional disk uses space in the pools of its two zones.
type DiskPool struct {
	Meta
	Zone    string `json:"zone" example:"sim-1a"`
	Type    string `json:"type" doc:"Disk type" example:"fast"`
	SizeGiB int    `json:"sizeGiB" doc:"Total capacity of the pool, in GiB" example:"1048576"`
	UsedGiB int    `json:"usedGiB" doc:"Space that disks use, in GiB. The cloud computes this value for each read, so watches do not report changes" example:"10"`
	FreeGiB int    `json:"freeGiB" doc:"Free space, in GiB; at least 0" example:"1048566"`
}

// DiskPoolName returns the name of the pool of a zone and a disk type.
func DiskPoolName(zone, diskType string) string { return zone + "." + diskType }

// MaxPoolGiB is the largest size of a pool: one exbibyte. Because of this limit, the sum of
// several pool sizes does not overflow an int.
const MaxPoolGiB = 1 << 30

// SetDiskPool sets the size of a pool. If the new size is smaller than the total size of the pool's
// disks, the cloud refuses requests that need more space in the pool. The existing disks stay.
type SetDiskPool struct {
	SizeGiB int `json:"sizeGiB" minimum:"0" maximum:"1073741824" doc:"New size in GiB; 0 for a pool without space" example:"100"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r SetDiskPool) Validate() error {
	var c checks
	c.between("sizeGiB", r.SizeGiB, 0, MaxPoolGiB)
	return c.err()
}
