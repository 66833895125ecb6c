package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// mkfsRuns has each mkfs.ext4 leave a line, and returns how many did. Each gets
// options besides: of an environment, where SELinux guards it, it takes none.
func mkfsRuns(t *testing.T, options ...string) func() int {
	t.Helper()
	real, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	runs := filepath.Join(dir, "runs")
	script := fmt.Sprintf("#!/bin/sh\necho >>%s\nexec %s %s \"$@\"\n", runs, real, strings.Join(options, " "))
	if err := os.WriteFile(filepath.Join(dir, "mkfs.ext4"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() int {
		raw, err := os.ReadFile(runs)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return len(raw)
	}
}

// formatted makes a filesystem on a new disk, whose device stays until the test ends.
func formatted(t *testing.T, templates *Templates, size int64) *Loop {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.img")
	emptyDisk(t, path, size)
	return formattedAt(t, templates, path, size)
}

func formattedAt(t *testing.T, templates *Templates, path string, size int64) *Loop {
	t.Helper()
	l, err := Attach(t.Context(), path, false, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Detach() })
	if got, err := templates.EnsureFilesystem(t.Context(), l, path, Ext4); err != nil || got != size {
		t.Fatalf("a filesystem of %d bytes, %v; want %d", got, err, size)
	}
	return l
}

// sound fails unless e2fsck finds nothing to mend, and the copies of the superblock
// are whole and of the same filesystem.
func sound(t *testing.T, l *Loop) {
	t.Helper()
	if out, err := exec.Command("e2fsck", "-f", "-n", l.Device()).CombinedOutput(); err != nil {
		t.Errorf("e2fsck: %v\n%s", err, out)
	}
	_, own := dumped(t, l)
	for _, block := range []string{"32768", "98304", "163840", "229376"} {
		out, err := exec.Command("dumpe2fs", "-h", "-o", "superblock="+block, "-o", "blocksize=4096", l.Device()).CombinedOutput()
		if err != nil || strings.Contains(string(out), "does not match") || !strings.Contains(string(out), own["Filesystem UUID"]) || !strings.Contains(string(out), own["Directory Hash Seed"]) {
			t.Errorf("the superblock in block %s, of a filesystem with %v: %v\n%s", block, own, err, out)
		}
	}
}

// dumped is what dumpe2fs says of a filesystem, but for what is its own; and that.
func dumped(t *testing.T, l *Loop) (all string, own map[string]string) {
	t.Helper()
	out, err := exec.Command("dumpe2fs", l.Device()).Output()
	if err != nil {
		t.Fatal(err)
	}
	own = map[string]string{}
	for _, key := range []string{"Filesystem UUID", "Directory Hash Seed", "Filesystem created", "Last write time", "Last checked", "Checksum seed", "Checksum"} {
		line := regexp.MustCompile(`(?m)^` + key + `: *(.*)\n`)
		if m := line.FindSubmatch(out); m != nil {
			own[key] = string(m[1])
			out = line.ReplaceAll(out, nil)
		}
	}
	out = regexp.MustCompile(` metadata_csum_seed|csum 0x[0-9a-f]+`).ReplaceAll(out, nil)
	return string(out), own
}

// A disk of a size that mkfs.ext4 was run for gets the same filesystem without it,
// with an identity of its own in every superblock, and it is as good.
func TestTemplate(t *testing.T) {
	needsVolumes(t)
	runs := mkfsRuns(t)
	var templates Templates
	for _, gib := range []int64{1, 9} {
		before := runs()
		made := formatted(t, &templates, gib<<30)
		want, first := dumped(t, made)
		seen := map[string]bool{first["Filesystem UUID"]: true, first["Directory Hash Seed"]: true}
		for range 2 {
			l := formatted(t, &templates, gib<<30)
			sound(t, l)
			got, own := dumped(t, l)
			if got != want {
				t.Errorf("a copy of %d GiB is shown as\n%s\nwhat mkfs made as\n%s", gib, got, want)
			}
			for _, key := range []string{"Filesystem UUID", "Directory Hash Seed"} {
				if id := own[key]; len(id) != 36 || id[14] != '4' || seen[id] {
					t.Errorf("its %s %q is not its own", key, id)
				}
				seen[own[key]] = true
			}
			keeps(t, l)
			sound(t, l)
		}
		if n := runs() - before; n != 1 {
			t.Errorf("for three disks of %d GiB mkfs.ext4 ran %d times", gib, n)
		}
	}
}

// keeps fails unless a filesystem keeps files over a mount, a growth, and a mount
// whose journal was never closed.
func keeps(t *testing.T, l *Loop) {
	t.Helper()
	at := t.TempDir()
	mount := func() {
		t.Helper()
		if err := MountDevice(l, at, Ext4, nil); err != nil {
			t.Fatal(err)
		}
	}
	mount()
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	for i := range 200 {
		dir := filepath.Join(at, fmt.Sprint(i))
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "file"), []byte(dir), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(unix.Syncfs(int(root.Fd())), unix.IoctlSetPointerInt(int(root.Fd()), 0x8004587d, 1), root.Close()) // EXT4_IOC_SHUTDOWN: the log is written, and left
	if err != nil {
		t.Fatal(err)
	}
	if err := UnmountAll(at); err != nil {
		t.Fatal(err)
	}
	mount()
	for i := range 200 {
		dir := filepath.Join(at, fmt.Sprint(i))
		if raw, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(raw) != dir {
			t.Fatalf("%s: %q, %v", dir, raw, err)
		}
	}
	if err := UnmountAll(at); err != nil {
		t.Fatal(err)
	}
}

// A filesystem that was made as a copy grows as any other.
func TestTemplateGrows(t *testing.T) {
	needsVolumes(t)
	var templates Templates
	formatted(t, &templates, 1<<30)
	path := filepath.Join(t.TempDir(), "disk.img")
	emptyDisk(t, path, 1<<30)
	l := formattedAt(t, &templates, path, 1<<30)
	if err := errors.Join(os.Truncate(path, 3<<30), l.Refresh()); err != nil {
		t.Fatal(err)
	}
	if got, err := templates.EnsureFilesystem(t.Context(), l, path, Ext4); err != nil || got != 3<<30 {
		t.Fatalf("it has %d bytes, %v", got, err)
	}
	sound(t, l)
	keeps(t, l)
}

// What a broken-off mkfs left is in no template, and is not left beside a copy.
func TestTemplateAfterBrokenMkfs(t *testing.T) {
	needsVolumes(t)
	runs := mkfsRuns(t)
	var templates Templates
	const size = 1 << 30
	for i, templated := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "disk.img")
		emptyDisk(t, path, size)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt([]byte("left"), 700<<20)
		if err := errors.Join(err, unix.Fsetxattr(int(f.Fd()), formatting, []byte("disk.img"), 0), f.Close()); err != nil {
			t.Fatal(err)
		}
		before := runs()
		formattedAt(t, &templates, path, size)
		if runs()-before != 1 {
			t.Errorf("with a template %t, what was begun was not ended by mkfs", templated)
		}
		if i == 0 {
			if templates.of(size) != nil {
				t.Error("what is left of a broken-off mkfs is in a template")
			}
			formatted(t, &templates, size)
		}
	}
}

// A filesystem whose identity is not in its superblocks alone is made by mkfs each
// time.
func TestNoTemplate(t *testing.T) {
	needsVolumes(t)
	for name, options := range map[string]string{
		"checksums of the UUID that no seed replaces": "-O ^metadata_csum,uninit_bg",
		"multiple-mount protection":                   "-O mmp",
		"small blocks":                                "-b 1024",
	} {
		t.Run(name, func(t *testing.T) {
			runs := mkfsRuns(t, options)
			var templates Templates
			for range 2 {
				l := formatted(t, &templates, 1<<30)
				if out, err := exec.Command("e2fsck", "-f", "-n", l.Device()).CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			}
			if n := runs(); n != 2 {
				t.Errorf("mkfs.ext4 ran %d times for two disks", n)
			}
		})
	}
}

// Few templates are kept, and those that are used.
func TestTemplatesAreFew(t *testing.T) {
	needsVolumes(t)
	runs := mkfsRuns(t)
	var templates Templates
	const first, sizes = int64(1) << 30, mostTemplates + 3
	for i := range int64(sizes) {
		formatted(t, &templates, first+i<<27)
		formatted(t, &templates, first) // is used again
	}
	if n := runs(); n != sizes {
		t.Errorf("for %d sizes mkfs.ext4 ran %d times", sizes, n)
	}
	if n := len(templates.known); n != mostTemplates {
		t.Errorf("%d templates are kept", n)
	}
	for _, m := range templates.known {
		kept := 0
		for _, b := range m.blocks {
			kept += len(b.data)
		}
		if kept > 512<<10 {
			t.Errorf("a template of %d MiB has %d bytes", m.size>>20, kept)
		}
	}
}

// A device that cannot take a copy is an error, and what was begun on it is known
// as that afterwards.
func TestTemplateOnFullDisk(t *testing.T) {
	needsVolumes(t)
	var templates Templates
	const size = 1 << 30
	formatted(t, &templates, size)
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "disk.img")
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	emptyDisk(t, path, size)
	l, err := Attach(t.Context(), path, false, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Detach() })
	if _, err := templates.EnsureFilesystem(t.Context(), l, path, Ext4); err == nil || !strings.Contains(err.Error(), l.Device()) && !errors.Is(err, unix.EIO) && !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("a full disk: %v", err)
	}
	if err := unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	if got, err := templates.EnsureFilesystem(t.Context(), l, path, Ext4); err != nil || got != size {
		t.Fatalf("with room it has %d bytes, %v", got, err)
	}
	sound(t, l)
}

// Where a copy was broken off there is no filesystem, whatever block it was at.
func TestTemplateBrokenOff(t *testing.T) {
	needsVolumes(t)
	var templates Templates
	const size = 1 << 30
	formatted(t, &templates, size)
	m := templates.of(size)
	path := filepath.Join(t.TempDir(), "disk.img")
	emptyDisk(t, path, size)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(unix.SIGXFSZ)
	defer signal.Reset(unix.SIGXFSZ)
	half := m.blocks[len(m.blocks)/2].at
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(half), Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	broken := m.writeTo(f)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(broken, unix.EFBIG) {
		t.Fatalf("it was not broken off: %v", broken)
	}
	if fsType, _, err := probe(f); err != nil || fsType != "" {
		t.Errorf("half of a filesystem is taken for %q, %v", fsType, err)
	}
	if err := m.writeTo(f); err != nil {
		t.Fatal(err)
	}
	if fsType, bytes, err := probe(f); err != nil || fsType != Ext4 || bytes != size {
		t.Errorf("a whole one is %q of %d bytes, %v", fsType, bytes, err)
	}
}
