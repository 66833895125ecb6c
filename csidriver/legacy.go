package csidriver

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/csidriver/machine"
)

// legacy describes the CSI driver of another cloud, here called the legacy
// driver. Kubernetes translates old in-tree volumes of that cloud into calls to
// the legacy driver (KEP-625). This project's driver can serve these calls
// under the name of the legacy driver.
type legacy struct {
	zoneKey string
	// The function volumeID returns the id of a disk in the legacy driver's format. The function
	// instanceID returns the id of an instance in the same format. In both results, the part after
	// the last slash contains the id in this cloud. But in the handle of an old PersistentVolume,
	// this part contains the name of the disk.
	volumeID   func(disk string) string
	instanceID func(instance string) string
	// volumeContext returns the volume context that the legacy driver would
	// return for a volume. If the function is nil, volumes have no context.
	volumeContext func(volume string) map[string]string
	// diskTypes maps the legacy driver's disk types to the nearest types of
	// this cloud.
	diskTypes map[string]string
	// ignoredParameters lists the parameters that this driver ignores.
	ignoredParameters []string
}

func unchanged(id string) string { return id }

// legacyDrivers contains the drivers of cloud disks from csi-translation-lib, the library that
// Kubernetes uses for in-tree volumes. The library has two more drivers, azure-file and portworx.
// The table does not contain them. The volumes of azure-file are shared folders, and the volumes of
// portworx are in a storage cluster.
var legacyDrivers = map[string]legacy{
	"cinder.csi.openstack.org": {
		zoneKey: "topology.cinder.csi.openstack.org/zone", volumeID: unchanged, instanceID: unchanged,
		diskTypes:         map[string]string{"__DEFAULT__": "balanced", "lvmdriver-1": "balanced", "ssd": "fast", "hdd": "standard"},
		ignoredParameters: []string{"availability"},
	},
	"ebs.csi.aws.com": {
		zoneKey: "topology.ebs.csi.aws.com/zone", instanceID: unchanged,
		volumeID:          func(disk string) string { return strings.Replace(disk, "disk-", "vol-", 1) },
		diskTypes:         map[string]string{"gp2": "balanced", "gp3": "balanced", "io1": "fast", "io2": "fast", "st1": "standard", "sc1": "standard", "standard": "standard"},
		ignoredParameters: []string{"iopsPerGB", "allowautoiopspergbincrease", "encrypted", "kmsKeyId"},
	},
	"pd.csi.storage.gke.io": {
		zoneKey:           "topology.gke.io/zone",
		volumeID:          func(disk string) string { return "projects/cloudsim/zones/UNSPECIFIED/disks/" + disk },
		instanceID:        func(instance string) string { return "projects/cloudsim/zones/UNSPECIFIED/instances/" + instance },
		diskTypes:         map[string]string{"pd-standard": "standard", "pd-balanced": "balanced", "pd-ssd": "fast", "pd-extreme": "fast"},
		ignoredParameters: []string{"disk-encryption-kms-key", "labels"},
	},
	"disk.csi.azure.com": {
		zoneKey: "topology.disk.csi.azure.com/zone", instanceID: unchanged,
		volumeID: func(disk string) string {
			return "/subscriptions/cloudsim/resourceGroups/cloudsim/providers/Microsoft.Compute/disks/" + disk
		},
		diskTypes:         map[string]string{"Standard_LRS": "standard", "StandardSSD_LRS": "balanced", "Premium_LRS": "fast", "UltraSSD_LRS": "fast"},
		ignoredParameters: []string{"cachingMode", "kind", "resourceGroup", "storageAccount", "location", "zoned", "diskEncryptionSetID"},
	},
	"csi.vsphere.vmware.com": {
		zoneKey: "topology.csi.vmware.com/zone", instanceID: unchanged,
		volumeID:          func(disk string) string { return "[cloudsim] kubevols/" + disk + ".vmdk" },
		volumeContext:     func(volume string) map[string]string { return map[string]string{"initialvolumefilepath": volume} },
		ignoredParameters: []string{"csimigration", "storagepolicyname"},
	},
}

// asKey is the context key for the driver name of a call.
type asKey struct{}

// calledAs returns the driver name to which the caller sent the call. If the
// caller used a legacy name, calledAs returns this name. Otherwise it returns
// ownDriver.
func calledAs(ctx context.Context, ownDriver string) string {
	if name, ok := ctx.Value(asKey{}).(string); ok {
		return name
	}
	return ownDriver
}

// LegacyNames lists the names of the drivers that this driver can replace.
func LegacyNames() []string { return slices.Sorted(maps.Keys(legacyDrivers)) }

// madeID matches the last part of a legacy volume handle if this part can be
// the id of a disk in this cloud. For the AWS driver, the prefix of a disk id
// is vol instead of disk.
var madeID = regexp.MustCompile(`^(?:disk|vol)-([0-9a-f]{1,32})$`)

// disk returns the id of the disk for a legacy volume handle. The last part of the handle is the id
// of a disk that the driver made, or in an old PersistentVolume the name of a disk. In some
// handles, an id has the prefix vol- instead of disk-. A user can give a disk a name that looks
// like another disk's id. Therefore the method uses the first of these rules that applies:
//   - If the last part is exactly the id of a disk that the driver made, the method returns this
//     id.
//   - The last part vol-000001 is ambiguous if the driver made the disk disk-000001, and another
//     disk has the name vol-000001. The method then returns FAILED_PRECONDITION.
//   - If the last part is the name of a disk, the method returns the id of this disk.
//   - If the last part is an id, the method returns this id with the prefix disk-.
//   - Otherwise, the method returns the last part.
func (l legacy) disk(ctx context.Context, cloud *client.Client, handle string) (string, error) {
	last := strings.TrimSuffix(path.Base(handle), ".vmdk")
	made := ""
	m := madeID.FindStringSubmatch(last)
	if m != nil {
		d, err := cloud.GetDisk(ctx, cloudsim.DiskID("disk-"+m[1]))
		switch {
		case err == nil && d.Labels[nameLabel] != "":
			made = string(d.ID)
		case err != nil && !errors.Is(err, cloudsim.NotFound):
			return "", err
		}
	}
	if made == last {
		return made, nil
	}
	if cloudName.MatchString(last) {
		found, err := cloud.ListDisks(ctx, cloudsim.ListOptions{Name: last})
		switch {
		case err != nil:
			return "", err
		case len(found.Items) == 1 && made != "" && made != string(found.Items[0].ID):
			return "", status.Errorf(codes.FailedPrecondition, "volume handle %s is ambiguous, because it can mean disk %s by its id or disk %s by its name: delete one of these disks, or use the id of the correct disk in a new PersistentVolume", last, made, found.Items[0].ID)
		case len(found.Items) == 1:
			return string(found.Items[0].ID), nil
		}
	}
	if m != nil {
		return "disk-" + m[1], nil
	}
	return last, nil
}

// mountedDisk returns the id of the disk that is mounted at mountPath. It reads the id from the
// mount, because the cloud cannot always give the right answer. The cloud may be down, or may have
// deleted the disk. If the handle contains a name, the cloud may have another disk with this name.
// If no disk of this driver is mounted at mountPath, the function returns the handle.
func mountedDisk(mountPath, handle string) (string, error) {
	file, err := machine.FileAt(mountPath)
	if disk := strings.TrimSuffix(filepath.Base(file), ".img"); diskID.MatchString(disk) {
		return disk, err
	}
	return handle, err
}

// stagedDisk returns the id of the disk that is staged at stagingPath. For a
// filesystem it calls mountedDisk. For a block volume it returns the name of
// the device file in the folder at stagingPath (see stagedAt).
func stagedDisk(stagingPath, handle string) (string, error) {
	disk, err := mountedDisk(stagingPath, handle)
	if err != nil || disk != handle {
		return disk, err
	}
	if top, err := machine.Seen(stagingPath); err != nil || top != nil {
		return handle, err // another filesystem is mounted at the path, so the files at the path are not device files
	}
	inside, err := os.ReadDir(stagingPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for _, f := range inside {
		if diskID.MatchString(f.Name()) {
			return f.Name(), nil
		}
	}
	return handle, nil
}

// These fields of CSI messages contain volume ids and node ids.
var (
	volumeFields = []protoreflect.Name{"volume_id", "source_volume_id", "source_volume_ids"}
	nodeFields   = []protoreflect.Name{"node_id", "published_node_ids"}
)

// speak returns an interceptor for calls to a legacy driver name. The argument legacyName is the
// name of the legacy driver, and ownName is the name of this driver. The interceptor translates ids
// and topology keys in requests and answers, and parameters in requests. The driver's services
// therefore handle only this driver's own values.
func (l legacy) speak(cloud *client.Client, legacyName, ownName string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		in, ok := req.(proto.Message)
		if !ok {
			return handle(ctx, req)
		}
		in, ctx = proto.Clone(in), context.WithValue(ctx, asKey{}, legacyName)
		volumeIDs := map[string]string{} // the caller's volume ids, by disk id
		toDisk := func(volume string) (string, error) {
			disk, err := l.disk(ctx, cloud, volume)
			volumeIDs[disk] = volume
			return disk, err
		}
		switch r := in.(type) {
		case *csi.CreateVolumeRequest:
			if err := copyFSType(r); err != nil {
				return nil, err
			}
		// For unpublish and unstage calls, read the disk id from the mounts of the
		// machine, because the cloud may have deleted the disk.
		case *csi.NodeUnpublishVolumeRequest:
			toDisk = func(volume string) (string, error) { return mountedDisk(r.GetTargetPath(), volume) }
		case *csi.NodeUnstageVolumeRequest:
			toDisk = func(volume string) (string, error) { return stagedDisk(r.GetStagingTargetPath(), volume) }
		}
		toInstance := func(node string) (string, error) { return path.Base(node), nil }
		if err := rewrite(in, translation{toDisk, toInstance, map[string]string{l.zoneKey: zoneKey(ownName)}, l.translateParameters}); err != nil {
			return nil, err
		}
		out, err := handle(ctx, in)
		if answer, ok := out.(proto.Message); ok && err == nil {
			fromDisk := func(disk string) (string, error) {
				if volume, ok := volumeIDs[disk]; ok {
					return volume, nil
				}
				return l.volumeID(disk), nil
			}
			fromInstance := func(instance string) (string, error) { return l.instanceID(instance), nil }
			if made, ok := out.(*csi.CreateVolumeResponse); ok && l.volumeContext != nil {
				made.Volume.VolumeContext = l.volumeContext(l.volumeID(made.GetVolume().GetVolumeId()))
			}
			err = rewrite(answer, translation{fromDisk, fromInstance, map[string]string{zoneKey(ownName): l.zoneKey}, nil})
		}
		return out, err
	}
}

// translation contains the translation rules for the function rewrite.
type translation struct {
	volume, node func(string) (string, error)
	keys         map[string]string // new topology key by old topology key
	parameters   func(map[string]string) map[string]string
}

// rewrite translates every id, topology key and parameter in m.
func rewrite(m proto.Message, w translation) error {
	return protorange.Range(m.ProtoReflect(), func(p protopath.Values) error {
		step := p.Index(-1)
		if step.Step.Kind() != protopath.FieldAccessStep {
			return nil
		}
		field, owner := step.Step.FieldDescriptor(), p.Index(-2).Value.Message()
		switch name := field.Name(); {
		case slices.Contains(volumeFields, name):
			return translateField(owner, field, w.volume)
		case slices.Contains(nodeFields, name):
			return translateField(owner, field, w.node)
		case name == "segments":
			replaceMap(owner, field, func(m map[string]string) map[string]string {
				named := map[string]string{}
				for k, v := range m {
					if to, ok := w.keys[k]; ok {
						k = to
					}
					named[k] = v
				}
				return named
			})
		case w.parameters != nil && (name == "parameters" || name == "mutable_parameters"):
			replaceMap(owner, field, w.parameters)
		}
		return nil
	})
}

// translateField translates the string or the strings of a field. It does not
// translate empty strings.
func translateField(m protoreflect.Message, field protoreflect.FieldDescriptor, to func(string) (string, error)) error {
	translate := func(v protoreflect.Value) (protoreflect.Value, error) {
		if v.String() == "" {
			return v, nil
		}
		s, err := to(v.String())
		return protoreflect.ValueOfString(s), err
	}
	if !field.IsList() {
		v, err := translate(m.Get(field))
		if err == nil {
			m.Set(field, v)
		}
		return err
	}
	list := m.Mutable(field).List()
	for i := range list.Len() {
		v, err := translate(list.Get(i))
		if err != nil {
			return err
		}
		list.Set(i, v)
	}
	return nil
}

func replaceMap(m protoreflect.Message, field protoreflect.FieldDescriptor, to func(map[string]string) map[string]string) {
	have := map[string]string{}
	m.Get(field).Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		have[k.String()] = v.String()
		return true
	})
	m.Clear(field)
	for k, v := range to(have) {
		m.Mutable(field).Map().Set(protoreflect.ValueOfString(k).MapKey(), protoreflect.ValueOfString(v))
	}
}

const (
	// migrationParam is a suffix that csi-translation-lib adds to the keys of vSphere parameters.
	// The driver ignores these parameters.
	migrationParam = "-migrationparam"
	// fsTypeParam is the key of the filesystem type. For some in-tree plugins, csi-translation-lib
	// renames this key, and the driver receives the type in the volume capability. For the other
	// plugins, the driver receives a parameter with this key.
	fsTypeParam = "fsType"
)

// copyFSType copies the filesystem type of an old StorageClass to the volume
// capabilities. If a capability has a different type, copyFSType returns an
// error. Otherwise staging would ignore the type of the StorageClass.
func copyFSType(r *csi.CreateVolumeRequest) error {
	for k, v := range r.GetParameters() {
		if !strings.EqualFold(k, fsTypeParam) || v == "" {
			continue
		}
		for _, c := range r.GetVolumeCapabilities() {
			switch m := c.GetMount(); {
			case m == nil || m.FsType == v:
			case m.FsType == "":
				m.FsType = v
			default:
				return invalidArgument("parameters."+k, "is %s, but volume_capability.mount.fs_type is %s: set the same filesystem in both fields", v, m.FsType)
			}
		}
	}
	return nil
}

// translateParameters translates the parameters of an old StorageClass. The method does not change
// an unknown disk type or replication type, so that the error of CreateVolume contains this value.
func (l legacy) translateParameters(old map[string]string) map[string]string {
	own := map[string]string{}
	for k, v := range old {
		switch {
		case slices.ContainsFunc(l.ignoredParameters, func(d string) bool { return strings.EqualFold(d, k) }),
			strings.HasSuffix(k, migrationParam), strings.EqualFold(k, fsTypeParam): // copyFSType has read this parameter
			continue
		case strings.EqualFold(k, keyType) || strings.EqualFold(k, "skuname") || strings.EqualFold(k, "storageaccounttype"):
			k = keyType
			if to, ok := l.diskTypes[v]; ok {
				v = to
			}
		case strings.EqualFold(k, "replication-type"):
			k = keyReplication
			if to, ok := map[string]string{"none": "zonal", "regional-pd": "regional"}[v]; ok {
				v = to
			}
		}
		own[k] = v
	}
	return own
}
