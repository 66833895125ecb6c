// Package machine handles the loop devices, filesystems and mounts of the
// machine on which it runs. It uses system calls. It runs other programs only
// to make, check or grow a filesystem.
//
// The package keeps no state in memory between two calls. Instead, it reads the kernel's tables. It
// also marks a disk before mkfs runs, and removes the mark after mkfs has succeeded. So if the
// process is killed at any point, the next process can continue. The package identifies a loop
// device by the inode of its file. It does not identify a device by its number, because after a
// detachment, the kernel can immediately give this number to another file. The package never makes
// a filesystem on a disk file that contains data. For a device of the hypervisor, this guarantee is
// weaker: the package checks only the first 4 MiB and the last MiB.
package machine

import (
	"errors"
	"regexp"
	"slices"
	"strings"
)

// These are the supported filesystems.
const (
	Ext4 = "ext4"
	XFS  = "xfs"
)

// Filesystems lists the supported filesystems. The first is the default.
func Filesystems() []string { return []string{Ext4, XFS} }

var (
	// ErrForeign means that the type of the filesystem on a disk differs from
	// the requested type.
	ErrForeign = errors.New("the disk already has a filesystem of another type")
	// ErrHasData means that a disk has data but no known filesystem.
	ErrHasData = errors.New("the disk has data but no known filesystem, so it is not formatted")
	// ErrJournal means that the filesystem has an unfinished journal and its
	// device is read-only. The kernel cannot replay the journal on a read-only
	// device. Without the replay, synced data can be missing. See Replay.
	ErrJournal = errors.New("the journal of the filesystem must be replayed first")
	// ErrOptions means that the kernel refused the mount options. The kernel
	// returns EINVAL for refused options and also for a damaged superblock. The
	// package therefore returns ErrOptions only if the caller gave
	// filesystem-specific options.
	ErrOptions = errors.New("the kernel refused the mount options")
)

// Mount is an entry of the kernel's mount table.
type Mount struct {
	Path         string
	Root         string // mounted folder or file of the filesystem, such as / or /loop3
	Major, Minor int
	FSType       string
	Options      []string // options of this mount
	Super        []string // options of the filesystem
}

// ReadOnly reports whether this mount refuses writes.
func (m Mount) ReadOnly() bool { return slices.Contains(m.Options, "ro") }

// ReadOnly returns a copy of options with ro at the end. The last option wins, so an rw in options
// has no effect.
func ReadOnly(options []string) []string { return append(slices.Clone(options), "ro") }

// IsDevice reports whether m is a bind mount of the device file of a loop device. For a mount of
// the filesystem on the device, it returns false. A pod can give a file in a tmpfs the name of a
// loop device. IsDevice wrongly returns true for this file, but Loop.Has excludes it.
func (m Mount) IsDevice() bool {
	// Usually /dev is a devtmpfs. On the machines of `allinone up`, it is a tmpfs.
	return (m.FSType == "devtmpfs" || m.FSType == "tmpfs") && loopNode.MatchString(m.Root)
}

var loopNode = regexp.MustCompile(`^/loop[0-9]+$`)

// shownOptions lists options that every filesystem supports and that the kernel
// always shows. MountedWith compares these options with the requested options.
// The list omits relatime, because the kernel also shows relatime if the caller did not request it.
var shownOptions = []string{"nosuid", "nodev", "noexec", "noatime", "nodiratime", "sync", "dirsync"}

// shownAsGiven lists filesystem options that the kernel shows in the requested form. The kernel
// shows other options in another form, or omits them if they are defaults.
var shownAsGiven = []string{"discard", "data=journal", "data=writeback", "dax=always", "prjquota"}

// MountedWith reports whether m has the given options. It compares only these options:
//   - The SELinux labels must be equal in the kernel's format.
//   - m and the given options must contain the same options of the list shownOptions.
//   - If the given options contain ro or an option in shownAsGiven, m must have this option.
//   - If a given option is KEY=NUMBER, m must not have the same key with another number.
func (m Mount) MountedWith(options []string) bool {
	have := append(slices.Clone(m.Options), m.Super...)
	for _, o := range shownOptions {
		if slices.Contains(have, o) != slices.Contains(options, o) {
			return false
		}
	}
	if m.Label() != Label(options) {
		return false
	}
	for _, o := range options {
		if o == "ro" && !m.ReadOnly() {
			return false
		}
		if slices.Contains(shownAsGiven, o) && !slices.Contains(have, o) || otherNumber(have, o) {
			return false
		}
	}
	return true
}

// otherNumber reports whether o has the form KEY=NUMBER and mountOptions
// contains this key with another number.
func otherNumber(mountOptions []string, o string) bool {
	isNumber := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	key, number, _ := strings.Cut(o, "=")
	return isNumber(number) && slices.ContainsFunc(mountOptions, func(h string) bool {
		k, n, _ := strings.Cut(h, "=")
		return k == key && isNumber(n) && n != number
	})
}

// label is the prefix of the option that gives all files of a filesystem one
// SELinux label. The kubelet sets this option for a driver with seLinuxMount in
// its CSIDriver object (KEP-1710).
const label = "context="

// Label returns the SELinux label that the options give to all files, in the
// kernel's format. If the options contain no label, it returns "".
func Label(options []string) string {
	for _, o := range options {
		if l, ok := strings.CutPrefix(o, label); ok {
			return canonicalLabel(strings.Trim(l, `"`))
		}
	}
	return ""
}

// Label returns the common SELinux label of all files of m. It returns "" if
// each file has its own label.
func (m Mount) Label() string { return Label(m.Super) }

// splitOptions splits the kernel's option text at commas. It does not split at commas in quotes,
// for example at the commas between the categories of an SELinux label.
func splitOptions(s string) (all []string) {
	quoted := false
	begin := 0
	for i, c := range s {
		switch {
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			all, begin = append(all, s[begin:i]), i+1
		}
	}
	return append(all, s[begin:])
}
