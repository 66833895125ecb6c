// Package machine handles the loop devices, filesystems and mounts of the machine
// that it runs on. It uses system calls. Only mkfs and the tools that check or grow
// a filesystem are other programs.
//
// The package keeps no state between two calls: the kernel's tables are the only
// record. A process that was killed at any point therefore has nothing to repair.
// The package identifies a device by the inode of the file behind it, never by its
// number, because the kernel gives the number to the next file at once. It never
// makes a filesystem on a disk that holds data.
package machine

import (
	"errors"
	"slices"
	"strings"
)

// The filesystems that can be made and mounted.
const (
	Ext4 = "ext4"
	XFS  = "xfs"
)

// Filesystems lists them; the first is the default.
func Filesystems() []string { return []string{Ext4, XFS} }

var (
	// ErrForeign says that a place is taken by something else.
	ErrForeign = errors.New("something else is mounted there")
	// ErrHasData says that a disk holds something that is no filesystem.
	ErrHasData = errors.New("it holds data and no filesystem that is known: it will not be formatted")
	// ErrJournal says that a filesystem was not closed, and may not be written to:
	// without what is in its journal it is not what was synced. See Replay.
	ErrJournal = errors.New("its journal must be replayed first")
	// ErrOptions says that a filesystem is not mounted with these options. The
	// kernel has one word for that and for a superblock that makes no sense: it is
	// taken for the options if there are any but those of every mount.
	ErrOptions = errors.New("not with these options")
)

// Mount is one line of the kernel's table of mounts.
type Mount struct {
	Path         string
	Root         string // what of the filesystem is mounted; of a bound device, its name
	Major, Minor int
	FSType       string
	Options      []string // of this mount
	Super        []string // of the filesystem
}

// ReadOnly reports whether this mount refuses writes.
func (m Mount) ReadOnly() bool { return slices.Contains(m.Options, "ro") }

// IsDevice reports whether m is a device's file, and not a filesystem on it.
func (m Mount) IsDevice() bool { return m.FSType == "devtmpfs" && strings.HasPrefix(m.Root, "/loop") }

// shown are the options that the kernel shows for a mount, which can be
// compared with what was asked for. relatime is what nothing asked for means.
var shown = []string{"nosuid", "nodev", "noexec", "noatime", "nodiratime", "sync", "dirsync"}

// shownAsGiven are options of filesystems that the kernel shows as they were
// given. Others it shows in other words, or not at all if they are what it does
// anyway: that they are missing says nothing.
var shownAsGiven = []string{"discard", "data=journal", "data=writeback", "dax=always", "prjquota"}

// MountedWith reports whether m was mounted with these options: of those that
// the kernel shows for every mount exactly these, the same SELinux label for all
// files, and of a filesystem's own at least these that it shows as they are given.
func (m Mount) MountedWith(options []string) bool {
	have := append(slices.Clone(m.Options), m.Super...)
	for _, o := range shown {
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

// otherNumber reports whether o is KEY=NUMBER, and have says another one.
func otherNumber(have []string, o string) bool {
	isNumber := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	key, number, _ := strings.Cut(o, "=")
	return isNumber(number) && slices.ContainsFunc(have, func(h string) bool {
		k, n, _ := strings.Cut(h, "=")
		return k == key && isNumber(n) && n != number
	})
}

// label is the option that gives all files of a filesystem one SELinux label, as
// the kubelet does for a driver whose CSIDriver says seLinuxMount (KEP-1710).
const label = "context="

// Label is the SELinux label that options give to all files, as the kernel shows
// it; "" if they give none.
func Label(options []string) string {
	for _, o := range options {
		if l, ok := strings.CutPrefix(o, label); ok {
			return canonical(strings.Trim(l, `"`))
		}
	}
	return ""
}

// Label is the SELinux label of all files of m; "" if each has its own.
func (m Mount) Label() string { return Label(m.Super) }

// splitOptions parts what the kernel shows of a filesystem at its commas, but for
// those in quotes: a label's categories.
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
