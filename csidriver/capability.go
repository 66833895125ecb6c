package csidriver

import (
	"cmp"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/cloudsim-dev/allinone/csidriver/machine"
)

type accessMode = csi.VolumeCapability_AccessMode_Mode

// use is the parsed form of one volume capability.
type use struct {
	block  bool
	fsType string // filesystem type; empty for a block volume
	flags  []string
	group  string // group that gets access to the files (KEP-2317)
	mode   accessMode
}

// useOf parses a capability. It returns an error if no volume can have this
// capability.
func useOf(v *csi.VolumeCapability) (u use, err error) {
	if v == nil {
		return u, invalidArgument("volume_capability", "is required")
	}
	u.mode = v.GetAccessMode().GetMode()
	if u.mode == csi.VolumeCapability_AccessMode_UNKNOWN {
		return u, invalidArgument("volume_capability.access_mode", "is required")
	}
	if _, known := csi.VolumeCapability_AccessMode_Mode_name[int32(u.mode)]; !known {
		return u, invalidArgument("volume_capability.access_mode", "must be a known access mode, got %d", u.mode)
	}
	switch {
	case v.GetBlock() != nil:
		u.block = true
	case v.GetMount() != nil:
		u.fsType = cmp.Or(v.GetMount().GetFsType(), machine.Ext4)
		u.flags, u.group = v.GetMount().GetMountFlags(), v.GetMount().GetVolumeMountGroup()
		if !slices.Contains(machine.Filesystems(), u.fsType) {
			return u, invalidArgument("volume_capability.mount.fs_type", "must be %s, got %q", strings.Join(machine.Filesystems(), " or "), u.fsType)
		}
	default:
		return u, invalidArgument("volume_capability", "must have block or mount")
	}
	if !u.block && (u.mode == csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER || u.mode == csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER) {
		return u, invalidArgument("volume_capability.access_mode", "%s is possible for block volumes only: %s does not support several nodes at once", u.mode, u.fsType)
	}
	return u, nil
}

// manyNodes reports whether the access mode allows several nodes at once.
func (u use) manyNodes() bool {
	switch u.mode {
	case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return true
	}
	return false
}

func (u use) readOnly() bool {
	return u.mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY || u.mode == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
}

// usesOf parses the capabilities of a volume. If a capability allows several
// nodes, hasManyNodes is true. The result fsTypes contains the filesystem
// types, sorted and separated by commas. For a block volume, fsTypes contains
// "block". The driver stores fsTypes in a label of the disk. So a later
// CreateVolume call with the same name, but with different filesystem types,
// gets ALREADY_EXISTS.
func usesOf(all []*csi.VolumeCapability) (hasManyNodes bool, fsTypes string, err error) {
	if len(all) == 0 {
		return false, "", invalidArgument("volume_capabilities", "is required")
	}
	var kinds []string
	for _, v := range all {
		u, err := useOf(v)
		if err != nil {
			return false, "", err
		}
		hasManyNodes = hasManyNodes || u.manyNodes()
		kinds = append(kinds, cmp.Or(u.fsType, "block"))
	}
	slices.Sort(kinds)
	return hasManyNodes, strings.Join(slices.Compact(kinds), ","), nil
}
