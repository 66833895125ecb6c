package csidriver

import (
	"cmp"
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
	// nameLabel is the label that contains the orchestrator's name for the volume or snapshot. CSI
	// permits longer names than the cloud. If the cloud does not permit the orchestrator's name,
	// the object in the cloud has another name (see nameOf).
	nameLabel = DefaultName + "/name"
	// asLabel is the label that contains the legacy driver name under which a caller created the
	// volume. If a caller used the driver's own name, the volume does not have this label.
	asLabel = DefaultName + "/driver"
	// contentLabel is the label that contains the requested content of the
	// volume, for example "ext4" or "block".
	contentLabel = DefaultName + "/content"
	// metadataPrefix is the prefix of parameters that external-provisioner and
	// external-snapshotter add. The values of these parameters are the names of
	// Kubernetes objects, such as the PersistentVolumeClaim of the volume.
	metadataPrefix = "csi.storage.k8s.io/"
	defaultGiB     = 10
)

var (
	cloudName = regexp.MustCompile(cloudsim.NamePattern)
	ownName   = regexp.MustCompile(`^(snap|csi)-[0-9a-f]+$`)
)

// nameOf returns the name that the driver uses in the cloud for the given name. It returns the
// given name, or in these cases "csi-" and a hash of the given name:
//   - The given name is not valid in the cloud.
//   - The given name has the form of a snapshot id. The cloud reserves these names.
//   - The given name consists of "csi-" and a hash. Unchanged, it could equal the result for
//     another name.
func nameOf(name string) string {
	if cloudName.MatchString(name) && !ownName.MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "csi-" + hex.EncodeToString(sum[:16])
}

// labelsOf returns the labels of a disk or snapshot. The labels contain the
// orchestrator's name and metadata, so that a person can find the Kubernetes
// object.
func labelsOf(name string, parameters map[string]string) map[string]string {
	labels := map[string]string{nameLabel: name}
	for k, v := range parameters {
		if strings.HasPrefix(k, metadataPrefix) && len(k) <= cloudsim.MaxLabelKey && len(v) <= cloudsim.MaxLabelValue {
			labels[k] = v
		}
	}
	return labels
}

// shape contains the parameters of a StorageClass and of a
// VolumeAttributesClass.
type shape struct {
	diskType         string
	iops, throughput int
	regional         bool
}

// These are the keys of parameters that the driver accepts.
const (
	keyType        = "type"
	keyIOPS        = "iops"
	keyThroughput  = "throughputMiBps"
	keyReplication = "replication"
	// keyDeletionPolicy is the name of a field of snapshot classes. Only the
	// orchestrator reads this field. Some users, and upstream's tests, also set
	// a parameter with this name. CreateVolumeGroupSnapshot accepts and ignores
	// this parameter.
	keyDeletionPolicy = "deletionPolicy"
)

// read adds parameters to s. The argument field is the name of the request's field that contains
// these parameters, for example "mutable_parameters". If field is "parameters", read ignores keys
// with the prefix metadataPrefix. For any other key that is not in permittedKeys, read returns an
// error.
func (s *shape) read(field string, parameters map[string]string, permittedKeys ...string) error {
	for _, k := range slices.Sorted(maps.Keys(parameters)) {
		v := parameters[k]
		if strings.HasPrefix(k, metadataPrefix) && field == "parameters" {
			continue
		}
		if !slices.Contains(permittedKeys, k) {
			return invalidArgument(field+"."+k, "is unknown: the known parameters are %s", cmp.Or(strings.Join(permittedKeys, ", "), "none"))
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
			err = invalidArgument(field+"."+k, "must be a whole number above 0, got %q", v)
		}
		return n
	}
	switch k {
	case keyType:
		if s.diskType = v; v == "" {
			err = invalidArgument(field+"."+k, "must name a disk type: see 'allinone cloud disk-types list'")
		}
	case keyIOPS:
		s.iops = number()
	case keyThroughput:
		s.throughput = number()
	case keyReplication:
		if v != "zonal" && v != "regional" {
			err = invalidArgument(field+"."+k, "must be zonal or regional, got %q", v)
		}
		s.regional = v == "regional"
	}
	return err
}

// sizes is the range of sizes in GiB that a request accepts.
type sizes struct{ least, most int }

// sizesOf parses a capacity range. It rounds the minimum up and the maximum down to whole GiB,
// because the size of a disk is a whole number of GiB.
func sizesOf(r *csi.CapacityRange) (s sizes, err error) {
	least, most := r.GetRequiredBytes(), r.GetLimitBytes()
	if least < 0 || most < 0 {
		return s, invalidArgument("capacity_range", "must not be negative, got %d to %d", least, most)
	}
	if most > 0 && least > most {
		return s, invalidArgument("capacity_range", "requires %d bytes, but its limit is %d bytes", least, most)
	}
	s = sizes{0, math.MaxInt}
	if least > 0 {
		s.least = int((least-1)/gib) + 1 // the usual formula least+gib-1 could overflow
	}
	if most > 0 {
		s.most = int(most / gib)
	}
	if s.least > s.most || s.most == 0 {
		return s, status.Errorf(codes.OutOfRange, "capacity_range contains no whole GiB between %d and %d bytes, but the size of a disk is a whole number of GiB", least, most)
	}
	if s.least > cloudsim.MaxDiskGiB {
		return s, status.Errorf(codes.OutOfRange, "capacity_range requires %d bytes: no disk has more than %d GiB", least, cloudsim.MaxDiskGiB)
	}
	return s, nil
}

func (s sizes) take(n int) bool { return n >= s.least && n <= s.most }
