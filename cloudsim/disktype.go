package cloudsim

// DiskType describes a type of disk that the cloud offers.
type DiskType struct {
	Meta
	MinGiB                 int  `json:"minGiB" doc:"Smallest size in GiB" example:"1"`
	MaxGiB                 int  `json:"maxGiB" doc:"Largest size in GiB" example:"16384"`
	MinIOPS                int  `json:"minIOPS" doc:"Smallest number of I/O operations per second of a disk" example:"500"`
	DefaultIOPS            int  `json:"defaultIOPS" doc:"Default number of I/O operations per second of a disk" example:"3000"`
	MaxIOPS                int  `json:"maxIOPS" doc:"Largest number of I/O operations per second of a disk" example:"16000"`
	MinThroughputMiBps     int  `json:"minThroughputMiBps" doc:"Smallest throughput of a disk in MiB per second" example:"50"`
	DefaultThroughputMiBps int  `json:"defaultThroughputMiBps" doc:"Default throughput of a disk in MiB per second" example:"125"`
	MaxThroughputMiBps     int  `json:"maxThroughputMiBps" doc:"Largest throughput of a disk in MiB per second" example:"1000"`
	MultiAttach            bool `json:"multiAttach" doc:"Whether disks of this type can be attached to several instances at once"`
	Regional               bool `json:"regional" doc:"Whether disks of this type can be replicated in two zones"`
	PoolGiB                int  `json:"poolGiB" doc:"Initial capacity in GiB of the pool in each zone; see /v1/disk-pools" example:"1048576"`
}

// defaultPoolGiB is the default size of a disk pool: one pebibyte. The pool is so large
// that users do not fill it by accident.
const defaultPoolGiB = 1 << 20

func defaultDiskTypes() []DiskType {
	return []DiskType{
		{
			Meta: Meta{Name: "standard"}, MinGiB: 1, MaxGiB: 16384, MinIOPS: 500, DefaultIOPS: 500, MaxIOPS: 500,
			MinThroughputMiBps: 60, DefaultThroughputMiBps: 60, MaxThroughputMiBps: 60, Regional: true, PoolGiB: defaultPoolGiB,
		},
		{
			Meta: Meta{Name: "balanced"}, MinGiB: 1, MaxGiB: 16384, MinIOPS: 500, DefaultIOPS: 3000, MaxIOPS: 16_000,
			MinThroughputMiBps: 50, DefaultThroughputMiBps: 125, MaxThroughputMiBps: 1000, Regional: true, PoolGiB: defaultPoolGiB,
		},
		{
			Meta: Meta{Name: "fast"}, MinGiB: 4, MaxGiB: 65536, MinIOPS: 1000, DefaultIOPS: 10_000, MaxIOPS: 100_000,
			MinThroughputMiBps: 100, DefaultThroughputMiBps: 500, MaxThroughputMiBps: 4000, MultiAttach: true, PoolGiB: defaultPoolGiB,
		},
	}
}

func (c *checks) diskType(t DiskType) {
	field := "diskTypes." + t.Name
	if t.MinGiB < 1 || t.MaxGiB < t.MinGiB {
		c.addf(field, "must have 1 <= minGiB <= maxGiB")
	}
	ordered := func(value string, least, usual, most int) {
		if least < 1 || usual < least || most < usual {
			c.addf(field, "must have 1 <= min%[1]s <= default%[1]s <= max%[1]s", value)
		}
	}
	ordered("IOPS", t.MinIOPS, t.DefaultIOPS, t.MaxIOPS)
	ordered("ThroughputMiBps", t.MinThroughputMiBps, t.DefaultThroughputMiBps, t.MaxThroughputMiBps)
	c.between(field+".poolGiB", t.PoolGiB, 0, MaxPoolGiB)
}

// diskPerformance checks whether the disk type t allows the given IOPS and throughput. The value 0
// is always valid.
func (c *checks) diskPerformance(t DiskType, iops, throughput int) {
	if iops != 0 && (iops < t.MinIOPS || iops > t.MaxIOPS) {
		c.addf("iops", "must be between %d and %d for type %s, got %d", t.MinIOPS, t.MaxIOPS, t.Name, iops)
	}
	if throughput != 0 && (throughput < t.MinThroughputMiBps || throughput > t.MaxThroughputMiBps) {
		c.addf("throughputMiBps", "must be between %d and %d for type %s, got %d", t.MinThroughputMiBps, t.MaxThroughputMiBps, t.Name, throughput)
	}
}
