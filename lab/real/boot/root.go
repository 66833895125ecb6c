package boot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// buildRoot builds the machine's root folder and makes it the root folder of this process. It does
// these steps:
//
//  1. It makes the mounts private, so no mount of the machine appears on the host.
//  2. It fills the new root with the mounts that the Spec lists.
//  3. It unmounts the old root, so the machine cannot reach other files of the host.
//  4. It makes the new root a shared mount. So the kubelet sees the mounts that a CSI driver
//     makes in the driver's container.
func buildRoot(s Spec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the host's mounts private: %w", err)
	}
	if err := unix.Mount("machine", s.Root, "tmpfs", unix.MS_NOSUID, "mode=755,size=64m"); err != nil {
		return fmt.Errorf("mounting the root tmpfs: %w", err)
	}
	in := func(path string) string { return filepath.Join(s.Root, path) }
	for _, d := range append([]string{"/proc", "/tmp", "/run", "/old"}, s.Dirs...) {
		if err := os.MkdirAll(in(d), 0o755); err != nil {
			return err
		}
	}
	for _, b := range s.Binds {
		if err := b.mount(in(b.To)); err != nil {
			return err
		}
	}
	if err := errors.Join(
		mount("tmpfs", in("/run"), unix.MS_NOSUID|unix.MS_NODEV, "mode=755"),
		mount("tmpfs", in("/tmp"), unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"),
		mount("proc", in("/proc"), unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""),
	); err != nil {
		return err
	}
	if err := mountTunables(s); err != nil {
		return err
	}
	if err := pivot(s.Root); err != nil {
		return err
	}
	// containerd mounts the network namespaces of pods in this folder.
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing mounts inside the machine: %w", err)
	}
	return nil
}

func mount(kind, at string, flags uintptr, data string) error {
	if err := unix.Mount(kind, at, kind, flags, data); err != nil {
		return fmt.Errorf("mounting %s on %s: %w", kind, at, err)
	}
	return nil
}

// mount creates targetPath and binds b.From to it. If b.From is a symbolic link and b.To is equal
// to b.From, the method copies the link instead. An example is /bin on modern distributions.
func (b Bind) mount(targetPath string) error {
	info, err := os.Lstat(b.From)
	if b.Optional && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if b.To == b.From {
			return copyLink(b.From, targetPath)
		}
		info, err = os.Stat(b.From) // bind the target of the link
	}
	if err != nil {
		return err
	}
	if err := makeTarget(targetPath, info.IsDir()); err != nil {
		return err
	}
	flags := uintptr(unix.MS_BIND)
	if b.Recursive {
		flags |= unix.MS_REC
	}
	if err := unix.Mount(b.From, targetPath, "", flags, ""); err != nil {
		return fmt.Errorf("binding %s to %s: %w", b.From, b.To, err)
	}
	if b.ReadOnly {
		if err := unix.Mount("", targetPath, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("making %s read-only: %w", b.To, err)
		}
	}
	return nil
}

func copyLink(from, at string) error {
	target, err := os.Readlink(from)
	if err != nil {
		return err
	}
	return os.Symlink(target, at)
}

func makeTarget(at string, dir bool) error {
	if dir {
		return os.MkdirAll(at, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(at, os.O_CREATE|os.O_WRONLY, 0o600) // the bound file has its own mode
	if err != nil {
		return err
	}
	return f.Close()
}

// mountTunables mounts a file over each kernel setting in Spec.Tunables. The machine reads
// and writes this file instead of the setting in /proc/sys.
func mountTunables(s Spec) error {
	dir := filepath.Join(s.Root, "run", "tunables")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for setting, value := range s.Tunables {
		own := filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(setting, "/"), "/", "."))
		if err := os.WriteFile(own, []byte(value+"\n"), 0o644); err != nil { //nolint:gosec // kernel settings are readable by all users
			return err
		}
		err := unix.Mount(own, filepath.Join(s.Root, setting), "", unix.MS_BIND, "")
		if err != nil && !errors.Is(err, unix.ENOENT) { // the kernel may not have this setting
			return fmt.Errorf("binding the machine's own %s: %w", setting, err)
		}
	}
	return nil
}

// pivot makes the folder root the root folder of this process, and unmounts the old root
// folder.
func pivot(root string) error {
	old := filepath.Join(root, "old")
	if err := unix.PivotRoot(root, old); err != nil {
		return fmt.Errorf("pivoting to %s: %w", root, err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/old", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmounting the host's root: %w", err)
	}
	return os.Remove("/old")
}
