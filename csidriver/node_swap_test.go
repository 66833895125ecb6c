package csidriver

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	podUser  = 1000
	minSwaps = 10_000
)

// swapLinks runs in a child process as the user of a pod. Until stdin ends, it
// replaces directories and a file of the volume by links to paths outside the
// volume, and reverses each replacement. After minSwaps swaps, it writes a line
// to stdout. File descriptor 3 is the root directory of the volume.
func swapLinks(outside string) error {
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(podUser), syscall.Setuid(podUser), syscall.Fchdir(3)); err != nil {
		return err
	}
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		_, _ = os.Stdin.Read(make([]byte, 1))
	}()
	links := map[string]string{"z": outside, "y/link": outside, "x": filepath.Join(outside, "secret")}
	for n := 0; ; {
		for name, target := range links {
			aside := filepath.Join("aside", filepath.Base(name))
			if err := errors.Join(os.Rename(name, aside), os.Symlink(target, name), os.Remove(name), os.Rename(aside, name)); err != nil {
				return err
			}
			if n++; n == minSwaps {
				fmt.Println("done")
			}
		}
		select {
		case <-stop:
			return nil
		default:
		}
	}
}

// TestSwappedLinksChangeNothingOutside proves that the driver does not change files outside a
// volume. While the driver changes the group of the volume's files, the pod replaces directories
// and files by links.
func TestSwappedLinksChangeNothingOutside(t *testing.T) {
	b := newNodeBench(t)
	outside := b.path("outside")
	if err := errors.Join(os.MkdirAll(filepath.Join(outside, "dir"), 0o755), os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600)); err != nil {
		t.Fatal(err)
	}
	v := b.volume("pvc-1")
	b.publish(v, mounted("ext4"))
	wantCode(t, "stage", b.stage(v, mounted("ext4")), codes.OK)
	wantCode(t, "publish for the first pod", b.show(v, "pod", mounted("ext4"), false), codes.OK)
	for _, dir := range []string{"aside", "y", "y/link", "y/link/dir", "z", "z/dir"} {
		must(t)(nil, os.Mkdir(b.path("pod/"+dir), 0o700))
	}
	files := []string{"x", "y/link/secret", "z/secret"}
	for i := range 200 { // with more files, more swaps happen while the driver changes the files
		files = append(files, fmt.Sprintf("a%d", i))
	}
	for _, file := range files {
		must(t)(nil, os.WriteFile(b.path("pod/"+file), nil, 0o600))
	}
	for _, name := range append(files, ".", "aside", "y", "y/link", "y/link/dir", "z", "z/dir") {
		must(t)(nil, os.Chown(b.path("pod/"+name), podUser, podUser))
	}

	before := statsOf(t, outside)
	stop := b.startSwapping("pod", outside)
	published := 0
	for i := 0; ; i++ {
		group := fmt.Sprint(2000 + i%2) // not the group of the previous call, so that the driver changes all files
		switch err := b.show(v, "other", ofGroup(group), false); status.Code(err) {
		case codes.OK:
			published++
			wantCode(t, "unpublish", b.hide(v, "other"), codes.OK)
		case codes.Internal: // the driver found a link to a path outside the volume; the kubelet would repeat the call
		default:
			t.Fatalf("publish during the swaps: %v", err)
		}
		if i >= 100 && published > 0 && stop() {
			break
		}
	}
	if after := statsOf(t, outside); after != before {
		t.Errorf("a pod changed files outside its volume from\n%s\nto\n%s", before, after)
	}
	wantCode(t, "publish after the swaps", b.show(v, "other", ofGroup("3000"), false), codes.OK)
	b.checkAccess("pod", 3000, unix.S_ISGID|0o775)
	b.checkAccess("pod/y/link/dir", 3000, unix.S_ISGID|0o770)
	b.checkAccess("pod/x", 3000, 0o660)
	wantCode(t, "unpublish", b.hide(v, "other"), codes.OK)
	b.clear(v)
}

// startSwapping runs swapLinks in a child process. Until the child has made
// minSwaps swaps, the returned function does nothing and returns false. After
// these swaps, a call of the returned function ends the child and returns true.
func (b *bench) startSwapping(volume, outside string) (stop func() bool) {
	t := b.t
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(b.path(volume))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	child := &exec.Cmd{Path: self, Args: []string{"swapper", outside}, Stderr: os.Stderr, ExtraFiles: []*os.File{dir}}
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	go func() {
		defer close(ready) // when the child has written a line or has ended
		_, _ = bufio.NewReader(out).ReadString('\n')
	}()
	t.Cleanup(func() { _ = child.Process.Kill() })
	return func() bool {
		select {
		case <-ready:
		default:
			return false
		}
		if err := errors.Join(in.Close(), child.Wait()); err != nil {
			t.Fatalf("the child that swaps links failed: %v", err)
		}
		return true
	}
}

// statsOf returns the owner, the group, the mode, the size and the change time
// (ctime) of each file below dir.
func statsOf(t *testing.T, dir string) (all string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return errors.ErrUnsupported
		}
		all += fmt.Sprintf("%s %d:%d %o %d %d.%d\n", path, st.Uid, st.Gid, st.Mode, st.Size, st.Ctim.Sec, st.Ctim.Nsec)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
