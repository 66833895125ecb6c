package aws

import (
	"errors"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// labelVolumeType is the label with EC2's type of a volume. The dialect needs this label because
// different types of EC2, such as gp2 and gp3, are the same disk type in this cloud.
const labelVolumeType = dialect.LabelPrefix + "volume-type"

const (
	defaultVolumeType = "gp2"     // the same as in EC2
	maxPerformance    = 1_000_000 // largest number for IOPS and throughput in a request; all disk types have lower limits
)

type volumeType struct {
	own              string // disk type of this cloud
	iops, throughput bool   // whether a request may contain the parameters Iops and Throughput
	needsIOPS        bool   // whether a request for a new volume must contain the parameter Iops
}

var volumeTypes = map[string]volumeType{
	"gp2":      {own: "balanced"},
	"gp3":      {own: "balanced", iops: true, throughput: true},
	"io1":      {own: "fast", iops: true, needsIOPS: true},
	"io2":      {own: "fast", iops: true, needsIOPS: true},
	"standard": {own: "standard"},
}

// shownTypes maps disk types of this cloud to volume types of EC2. The dialect uses this map if a
// client has created the disk, or changed its type, without this dialect.
var shownTypes = map[string]string{"balanced": "gp3", "fast": "io2", "standard": "standard"}

// typeOf returns EC2's type of a disk. If the volume type in the label labelVolumeType belongs to
// the disk type of the disk, the result is this volume type. Otherwise the result is the volume
// type in the map shownTypes. If this map does not contain the disk type, typeOf returns the name
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

// performance contains the type and the performance that a request asks for. A field is "" or 0 if
// the request does not contain the parameter of this field.
type performance struct {
	Type             string
	IOPS, Throughput int
}

// diskType returns the name of the disk type for the requested volume type. If the catalogue
// contains a disk type with the name of the volume type, diskType returns this name. Otherwise it
// returns the disk type in the map volumeTypes. It returns an error if this cloud has no disk type
// for the volume type. EC2 allows each of the parameters Iops and Throughput only for some volume
// types. If the request contains a parameter that is not allowed for its volume type, diskType also
// returns an error.
func (p performance) diskType(q *query) (string, error) {
	t, known := volumeTypes[p.Type]
	_, err := q.Cloud.GetDiskType(q.Context(), p.Type)
	switch {
	case err == nil && !known:
		return p.Type, nil // a disk type of the operator; the catalogue contains its limits
	case err == nil:
		t.own = p.Type
	case !errors.Is(err, cloudsim.NotFound):
		return "", err
	case p.Type == "st1" || p.Type == "sc1":
		return "", dialect.Unsupported{What: "the volume type " + p.Type, Why: "use the type gp3 or standard"}
	case !known:
		return "", errInvalid("VolumeType", p.Type, "gp2, gp3, io1, io2, standard, or a disk type of the catalogue")
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
