package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// GiveToGroup changes the files and directories of the volume that is mounted at path. It sets
// their group to gid, and gives this group permission to read and write (KEP-2317). On directories,
// it also permits search and sets the setgid bit. It changes the root directory last. If the root
// directory already has the group and these permissions, an earlier call has finished, and
// GiveToGroup does nothing. The function therefore changes a large volume only once.
//
// Pods may change the volume during the call. GiveToGroup changes no file outside the volume,
// because it opens each name through an os.Root. An os.Root refuses names that lead out of its
// directory. GiveToGroup skips entries that a pod has removed.
func GiveToGroup(path string, gid int) error {
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Gid) == gid && st.Mode&(unix.S_ISGID|0o070) == unix.S_ISGID|0o070 {
		return nil
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, _ fs.DirEntry, err error) error {
		switch {
		case name == ".":
			return err
		case err == nil && len(name) > unix.PathMax: // a pod can nest directories without end
			err = &fs.PathError{Op: "walk", Path: name[:64] + "...", Err: unix.ENAMETOOLONG}
		case err == nil:
			err = giveToGroup(root, name, gid)
		default: // the directory cannot be read
			if info, e := root.Lstat(name); e == nil && !info.IsDir() {
				return nil // a pod has replaced the directory
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return giveToGroup(root, ".", gid)
}

// giveToGroup changes the group and the mode of one entry. It opens the entry
// without following a link, and changes the opened entry. If a pod replaces the
// entry in the meantime, no other file changes.
func giveToGroup(root *os.Root, name string, gid int) error {
	f, err := root.OpenFile(name, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat() // read the mode before the chown, because a chown clears the setuid bit
	if err != nil {
		return err
	}
	if err := unix.Fchownat(int(f.Fd()), "", -1, gid, unix.AT_EMPTY_PATH); err != nil {
		return &fs.PathError{Op: "chown", Path: name, Err: err}
	}
	self := fmt.Sprintf("/proc/self/fd/%d", f.Fd()) // fchmod(2) refuses an O_PATH descriptor
	switch {
	case info.IsDir():
		return os.Chmod(self, info.Mode()|0o070|fs.ModeSetgid)
	case info.Mode().IsRegular():
		return os.Chmod(self, info.Mode()|0o060)
	}
	return nil
}
