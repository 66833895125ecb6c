package aws

import (
	"errors"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// labelVolumeType stores EC2's type of a volume, because several types of EC2 are one type of this
// cloud.
const labelVolumeType = dialect.LabelPrefix + "volume-type"

const (
	defaultVolumeType = "gp2"     // as in EC2
	maxPerformance    = 1_000_000 // of IOPS and throughput; more than any disk type allows
)

// volumeType describes a type of EC2.
type volumeType struct {
	own              string // disk type of this cloud
	iops, throughput bool   // whether a request may contain the parameter
	needsIOPS        bool   // whether a request for a new volume must contain the parameter Iops
}

var volumeTypes = map[string]volumeType{
	"gp2":      {own: "balanced"},
	"gp3":      {own: "balanced", iops: true, throughput: true},
	"io1":      {own: "fast", iops: true, needsIOPS: true},
	"io2":      {own: "fast", iops: true, needsIOPS: true},
	"standard": {own: "standard"},
}

// shownTypes maps disk types to EC2's types, for disks of other clients.
var shownTypes = map[string]string{"balanced": "gp3", "fast": "io2", "standard": "standard"}

// typeOf returns EC2's type of a disk: the type of the last request through this dialect, or a type
// with the properties of the disk type. For other disk types of the catalogue, it returns the name
// of the disk type.
func typeOf(d cloudsim.Disk) string {
	if name := d.Labels[labelVolumeType]; name == d.Type || name != "" && volumeTypes[name].own == d.Type {
		return name
	}
	if name := shownTypes[d.Type]; name != "" {
		return name
	}
	return d.Type
}

// performance contains the requested type of a volume, and the requested performance or 0.
type performance struct {
	Type             string
	IOPS, Throughput int
}

// diskType returns the name of the disk type in this cloud. If the catalogue contains a disk type
// with EC2's name, it returns this name. It returns an error for a type that this cloud does not
// have, and for parameters that EC2 does not allow for the type.
func (p performance) diskType(q *query) (string, error) {
	t, known := volumeTypes[p.Type]
	_, err := q.Cloud.GetDiskType(q.Context(), p.Type)
	switch {
	case err == nil && !known:
		return p.Type, nil // a type of the operator, with the limits in the catalogue
	case err == nil:
		t.own = p.Type
	case !errors.Is(err, cloudsim.NotFound):
		return "", err
	case p.Type == "st1" || p.Type == "sc1":
		return "", dialect.Unsupported{What: "the volume type " + p.Type, Why: "use the type gp3 or standard"}
	case !known:
		return "", invalid("VolumeType", p.Type, "gp2, gp3, io1, io2, standard, or a disk type of the catalogue")
	}
	for _, c := range []struct {
		given, allowed bool
		name           string
	}{{p.IOPS > 0, t.iops, "Iops"}, {p.Throughput > 0, t.throughput, "Throughput"}} {
		if c.given && !c.allowed {
			return "", coded(http.StatusBadRequest, "InvalidParameterCombination", "the parameter "+c.name+" is not allowed for the volume type "+p.Type+": use the type gp3")
		}
	}
	return t.own, nil
}
