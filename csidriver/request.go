package csidriver

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

const (
	gib = int64(1) << 30
	// nameLabel holds the name that the orchestrator gave: the cloud's own
	// names are shorter than CSI's.
	nameLabel = DefaultName + "/name"
	// asLabel holds the legacy name that a volume was made under, if it was.
	asLabel = DefaultName + "/driver"
	// contentLabel holds what the volume was made for, e.g. "ext4" or "block".
	contentLabel = DefaultName + "/content"
	// metadataPrefix begins the parameters that external-provisioner and
	// external-snapshotter add: who the volume is for.
	metadataPrefix = "csi.storage.k8s.io/"
	defaultGiB     = 10
)

var (
	cloudName = regexp.MustCompile(cloudsim.NamePattern)
	ownName   = regexp.MustCompile(`^(snap|csi)-[0-9a-f]+$`)
)

// nameOf is name as the cloud takes it: the same if it can be, or else one that
// only this name has.
func nameOf(name string) string {
	if cloudName.MatchString(name) && !ownName.MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "csi-" + hex.EncodeToString(sum[:16])
}

// labelsOf are the labels of what is made for name: what the orchestrator says
// of it, so that a person finds whose it is.
func labelsOf(name string, parameters map[string]string) map[string]string {
	labels := map[string]string{nameLabel: name}
	for k, v := range parameters {
		if strings.HasPrefix(k, metadataPrefix) && len(k) <= cloudsim.MaxLabelKey && len(v) <= cloudsim.MaxLabelValue {
			labels[k] = v
		}
	}
	return labels
}

// shape is what StorageClass parameters and a VolumeAttributesClass may say.
type shape struct {
	diskType         string
	iops, throughput int
	regional         bool
}

// The keys of parameters.
const (
	keyType        = "type"
	keyIOPS        = "iops"
	keyThroughput  = "throughputMiBps"
	keyReplication = "replication"
	// keyDeletionPolicy is a field of the classes of snapshots, and the
	// orchestrator's to act on. Some repeat it here, upstream's tests among them.
	keyDeletionPolicy = "deletionPolicy"
)

// read adds parameters to s; what of them is not in known is refused.
func (s *shape) read(field string, parameters map[string]string, known ...string) error {
	for _, k := range slices.Sorted(maps.Keys(parameters)) {
		v := parameters[k]
		if strings.HasPrefix(k, metadataPrefix) && field == "parameters" {
			continue
		}
		if !slices.Contains(known, k) {
			return invalid(field+"."+k, "is not known; there are %s", strings.Join(known, ", "))
		}
		if err := s.set(field, k, v); err != nil {
			return err
		}
	}
	return nil
}

func (s *shape) set(field, k, v string) (err error) {
	number := func() int {
		n, e := strconv.Atoi(v)
		if e != nil || n < 1 {
			err = invalid(field+"."+k, "must be a whole number above 0, got %q", v)
		}
		return n
	}
	switch k {
	case keyType:
		if s.diskType = v; v == "" {
			err = invalid(field+"."+k, "must name a disk type: see 'allinone cloud disk-types list'")
		}
	case keyIOPS:
		s.iops = number()
	case keyThroughput:
		s.throughput = number()
	case keyReplication:
		if v != "zonal" && v != "regional" {
			err = invalid(field+"."+k, "must be zonal or regional, got %q", v)
		}
		s.regional = v == "regional"
	}
	return err
}

// sizes are the sizes in GiB that a request takes.
type sizes struct{ least, most int }

// sizesOf reads a capacity range: disks come in whole GiB.
func sizesOf(r *csi.CapacityRange) (s sizes, err error) {
	least, most := r.GetRequiredBytes(), r.GetLimitBytes()
	if least < 0 || most < 0 {
		return s, invalid("capacity_range", "must not be negative, got %d to %d", least, most)
	}
	if most > 0 && least > most {
		return s, invalid("capacity_range", "requires %d and is limited to %d", least, most)
	}
	s = sizes{0, math.MaxInt}
	if least > 0 {
		s.least = int((least-1)/gib) + 1 // does not overflow
	}
	if most > 0 {
		s.most = int(most / gib)
	}
	if s.least > s.most || s.most == 0 {
		return s, status.Errorf(codes.OutOfRange, "capacity_range has no whole GiB from %d to %d bytes: disks have", least, most)
	}
	if s.least > cloudsim.MaxDiskGiB {
		return s, status.Errorf(codes.OutOfRange, "capacity_range requires %d bytes: no disk has more than %d GiB", least, cloudsim.MaxDiskGiB)
	}
	return s, nil
}

func (s sizes) take(n int) bool { return n >= s.least && n <= s.most }
