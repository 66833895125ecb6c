package machine

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnmountAll proves that the functions At and Seen find stacked mounts, bind
// mounts of a folder and bind mounts of a file. UnmountAll removes all of them.
func TestUnmountAll(t *testing.T) {
	needsVolumes(t)
	dir := privateDir(t)
	shown, at := filepath.Join(dir, "shown"), filepath.Join(dir, "at")
	for _, d := range []string{shown, at} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	file, atFile := filepath.Join(shown, "file"), filepath.Join(dir, "at-file")
	for _, f := range []string{file, atFile} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range [][2]string{{shown, at}, {shown, at}, {file, atFile}} {
		if err := Bind(m[0], m[1], nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(m[1], unix.MNT_DETACH) })
	}
	// A path below a mount point and a link to a mount point are not mount
	// points.
	link := filepath.Join(dir, "link")
	if err := os.Symlink(at, link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{at: 2, atFile: 1, shown: 0, dir: 1, link: 0, filepath.Join(at, "file"): 0, filepath.Join(dir, "none"): 0} {
		if got, err := At(path); err != nil || len(got) != want {
			t.Errorf("At(%s): got %v, %v; want %d mounts", path, got, err, want)
		}
		if got, err := Seen(path); err != nil || (got != nil) != (want > 0) {
			t.Errorf("Seen(%s) at a path with %d mounts: got %v, error %v; want a mount: %t", path, want, got, err, want > 0)
		}
	}
	for _, path := range []string{at, atFile, filepath.Join(dir, "none")} {
		if err := UnmountAll(path); err != nil {
			t.Error(err)
		}
		if got, err := At(path); err != nil || len(got) != 0 {
			t.Errorf("%s after UnmountAll: got %v, %v; want no mount", path, got, err)
		}
	}
}

// privateDir returns a directory with private mount propagation. By default, systemd sets shared
// propagation. With shared propagation, a mount inside a bind mount also appears inside the
// original folder.
func privateDir(t *testing.T) string {
	dir := t.TempDir()
	if err := Bind(dir, dir, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestFindNear mounts the devices of two files. The test proves that Find returns only the device
// of the given file, even if the argument near contains the mount of the other device.
func TestFindNear(t *testing.T) {
	needsVolumes(t)
	dir := t.TempDir()
	loops, at := map[string]*Loop{}, map[string]string{}
	for _, name := range []string{"mine", "other"} {
		path := filepath.Join(dir, name+".img")
		at[name] = filepath.Join(dir, name)
		emptyDisk(t, path, 64<<20)
		if err := os.Mkdir(at[name], 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := Attach(t.Context(), path, false, true)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Detach() }()
		if _, err := EnsureFilesystem(t.Context(), l, path, Ext4); err != nil {
			t.Fatal(err)
		}
		if err := MountDevice(l, at[name], Ext4, nil); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Unmount(at[name], unix.MNT_DETACH) }()
		loops[name] = l
	}
	for _, near := range [][]string{nil, {at["mine"]}, {at["other"]}, {dir}, {filepath.Join(dir, "none"), at["mine"]}} {
		l, err := Find(filepath.Join(dir, "mine.img"), near...)
		if err != nil || l == nil || l.Number != loops["mine"].Number {
			t.Fatalf("Find near %v: got %v, %v; want %s", near, l, err, loops["mine"].Device())
		}
		_ = l.Close()
	}
	if err := os.WriteFile(filepath.Join(dir, "third.img"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := Find(filepath.Join(dir, "third.img"), at["mine"], loops["other"].Device()); err != nil || l != nil {
		t.Errorf("file without a device: got %v, %v; want nil", l, err)
	}
}

// TestSeenMatchesMountTable proves that Seen returns the last of the mounts that the kernel's mount
// table contains for a path. The test checks filesystems on loop devices, and mounts that cover
// these filesystems.
func TestSeenMatchesMountTable(t *testing.T) {
	needsVolumes(t)
	dir := t.TempDir()
	file, at, bindPath := filepath.Join(dir, "disk.img"), filepath.Join(dir, "at"), filepath.Join(dir, "again")
	for _, d := range []string{at, bindPath} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	emptyDisk(t, file, 1<<30)
	l, err := Attach(t.Context(), file, false, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, at := range []string{bindPath, at} {
			if err := UnmountAll(at); err != nil {
				t.Error(err)
			}
		}
		if err := l.Detach(); err != nil {
			t.Error(err)
		}
	})
	if _, err := EnsureFilesystem(t.Context(), l, file, Ext4); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		mount        func() error
		at           string
		onDevice, ro bool
	}{
		{func() error { return MountDevice(l, at, Ext4, nil) }, at, true, false},
		{func() error { return Bind(at, bindPath, []string{"ro"}) }, bindPath, true, true},
		{func() error { return unix.Mount("none", at, "tmpfs", 0, "") }, at, false, false},
		{func() error { return MountDevice(l, at, Ext4, nil) }, at, true, false},
	} {
		if err := step.mount(); err != nil {
			t.Fatal(err)
		}
		table, err := At(step.at)
		if err != nil || len(table) == 0 {
			t.Fatalf("At(%s) returned no mount: %v", step.at, err)
		}
		last := table[len(table)-1]
		got, err := Seen(step.at)
		if err != nil || got == nil {
			t.Fatalf("Seen(%s) returned no mount: %v", step.at, err)
		}
		if got.Path != last.Path || got.Major != last.Major || got.Minor != last.Minor || got.FSType != last.FSType || got.ReadOnly() != last.ReadOnly() {
			t.Errorf("Seen(%s): got %+v, want %+v as in the mount table", step.at, *got, last)
		}
		if l.Has(*got) != step.onDevice || got.ReadOnly() != step.ro {
			t.Errorf("Seen(%s): got %+v, want ours: %t, read-only: %t", step.at, *got, step.onDevice, step.ro)
		}
	}
}
