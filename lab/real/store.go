package real

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// imageStore creates a containerd folder with all images unpacked. A new machine gets a copy of
// this folder. The copy contains hard links instead of file copies. So the host's disk and the
// host's page cache each contain a file of an image only once. The machines can share files because
// containerd adds and removes layers and blobs, but never changes them.
type imageStore struct {
	dir      string // parent folder; the store is the subfolder with the key as its name
	programs string // folder with containerd and ctr
	images   string // folder with the images' programs and with archives
	more     string // folder with more archives; "" means no such folder
	loaded   string // folder with the archives of images that the user has loaded
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// archivePaths returns the paths of the image archives in the folders s.images, s.more and
// s.loaded. If two archives contain an image with the same name, the store gets the image of the
// archive that is later in the result.
func (s imageStore) archivePaths() ([]string, error) {
	var all []string
	for _, dir := range []string{s.images, s.more, s.loaded} {
		if dir == "" {
			continue
		}
		found, err := glob(dir, "*.tar")
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// key returns a hash of the names, sizes and modification times of the store's input files. Another
// version of a program or another archive gives another key.
func (s imageStore) key() (string, error) {
	files, err := s.archivePaths()
	if err != nil {
		return "", err
	}
	for _, m := range builtImages(s.images) {
		files = append(files, m.program)
		if m.tools != "" {
			files = append(files, m.tools)
		}
	}
	files = append(files, filepath.Join(s.programs, "containerd"))
	sum := sha256.New()
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, f, info.Size(), info.ModTime().UnixNano())
	}
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

// ensureStore returns the store's folder. If the folder does not exist, ensureStore creates the
// store. The creation takes some seconds. After the creation, ensureStore calls sayFn to report
// the duration of the creation to the user.
func (s imageStore) ensureStore(ctx context.Context, sayFn func(string, ...any)) (string, error) {
	key, err := s.key()
	if err != nil {
		return "", fmt.Errorf("images: %w; run `make build machine`", err)
	}
	dir := filepath.Join(s.dir, key)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.RemoveAll(s.dir); err != nil { // deletes stores of other versions; machines have their own links to the files
		return "", err
	}
	work := filepath.Join(s.dir, "work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		return "", err
	}
	began := time.Now()
	if err := s.fill(ctx, work); err != nil {
		return "", fmt.Errorf("unpacking images: %w", err)
	}
	if err := os.Rename(filepath.Join(work, "root"), dir); err != nil {
		return "", err
	}
	sayFn("unpacked the machines' images in %.1fs", time.Since(began).Seconds())
	return dir, os.RemoveAll(work)
}

// fill runs a containerd in a new mount namespace and imports all images. The socket is in a folder
// with a short path, because containerd accepts a path of at most 104 bytes.
func (s imageStore) fill(ctx context.Context, work string) (err error) {
	short, err := os.MkdirTemp("", "cloudsim-store-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(short)) }()
	socket := filepath.Join(short, "s")
	config := filepath.Join(work, "containerd.toml")
	err = os.WriteFile(config, fmt.Appendf(nil, storeConfig, filepath.Join(work, "root"), filepath.Join(work, "state"), socket), 0o600)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var output strings.Builder
	daemon := exec.CommandContext(ctx, filepath.Join(s.programs, "containerd"), "--config", config)
	daemon.Stdout, daemon.Stderr = &output, &output
	daemon.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL, Unshareflags: unix.CLONE_NEWNS}
	daemon.Cancel = func() error { return daemon.Process.Signal(unix.SIGTERM) }
	daemon.WaitDelay = 10 * time.Second
	if err := daemon.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = daemon.Wait() // the state of the process contains the reason
		cancel(fmt.Errorf("containerd has ended: %s", daemon.ProcessState))
		close(ended)
	}()
	defer func() {
		cancel(nil)
		<-ended
		if err != nil {
			err = fmt.Errorf("%w; containerd said:\n%s", err, lastLines(output.String(), 5))
		}
	}()
	if err := s.awaitSocket(ctx, socket); err != nil {
		return err
	}
	return s.importAll(ctx, ctrAt(s.programs, socket))
}

// storeConfig disables the plugins that serve the kubelet, because this containerd runs no
// containers.
const storeConfig = `version = 3
root = %q
state = %q
disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "io.containerd.nri.v1.nri"]
[grpc]
address = %q
[ttrpc]
address = ""
`

// stepWithin is the time limit of one step. A step is the start of containerd or one import of
// images. All steps together have no limit. On a slow host, a limit for all steps could stop the
// work before the last step. The next attempt would then begin again with the first step.
const stepWithin = 5 * time.Minute

func (s imageStore) awaitSocket(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	for {
		_, err := os.Stat(socket)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("containerd does not answer: %w", context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s imageStore) importAll(ctx context.Context, client ctr) error {
	for _, m := range builtImages(s.images) {
		r, w := io.Pipe()
		written := make(chan error, 1)
		go func() {
			err := m.writeArchive(w)
			written <- errors.Join(err, w.CloseWithError(err))
		}()
		err := client.importFrom(ctx, r)
		if err := errors.Join(err, r.Close(), <-written); err != nil {
			return fmt.Errorf("image %s: %w", m.ref, err)
		}
	}
	archives, err := s.archivePaths()
	if err != nil {
		return err
	}
	for _, a := range archives {
		if err := s.importArchive(ctx, client, a); err != nil {
			return fmt.Errorf("archive %s: %w", a, err)
		}
	}
	return nil
}

// importArchive imports the images of an archive. If the archive is not in s.loaded, importArchive
// checks the archive first. Images.Load has already checked the archives in s.loaded.
func (s imageStore) importArchive(ctx context.Context, client ctr, path string) (err error) {
	if filepath.Dir(path) == s.loaded {
		return client.importFile(ctx, path)
	}
	work, err := os.MkdirTemp(s.dir, "archive-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	all, err := readImages(ctx, path, nil, "", work)
	if err != nil {
		return err
	}
	for _, m := range all {
		if err := client.importFile(ctx, m.file); err != nil {
			return err
		}
	}
	return nil
}

// ctr is containerd's client: the program and its first arguments.
type ctr []string

// ctrAt returns a client for the containerd that listens on a socket of this host.
func ctrAt(programs, socket string) ctr {
	return ctr{filepath.Join(programs, "ctr"), "--address", socket}
}

// ctrIn returns a client for the containerd that runs in the machine with cgroup c. The argument
// pid is the pid of the machine's first process. The client runs in the namespaces of the machine.
// So a symbolic link in the machine cannot lead the client to a file or socket of this host. The
// client also runs in the machine's cgroup, so its CPU time and its memory count for the machine.
func ctrIn(c cgroup, pid int) ctr { return c.enterCommand(pid, "/opt/machine/ctr") }

func (c ctr) importFile(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return c.importFrom(ctx, f)
}

func (c ctr) importFrom(ctx context.Context, r io.Reader) error {
	ctx, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	_, err := c.runImages(ctx, r, "import", "--digests=false", "-")
	return err
}

func (c ctr) runImages(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	all := slices.Concat(c[1:], []string{"--namespace", "k8s.io", "images"}, args)
	cmd := exec.CommandContext(ctx, c[0], all...) //nolint:gosec // the lab's own program
	var failed strings.Builder
	cmd.Stdin, cmd.Stderr = stdin, &failed
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ctr images %s: %w: %s", args[0], err, lastLines(failed.String(), 3))
	}
	return string(out), nil
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// firstLines returns the first n lines of a message. Programs such as nft print the error in the
// first line. The other lines show the position of the error.
func firstLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[:min(n, len(lines))], "\n")
}

// cloneStore copies the store in the folder src to the folder dst on a machine's disk. If dst
// exists, cloneStore does nothing. Otherwise it creates folders, and makes hard links to files. It
// copies databases, because containerd writes into databases. cloneStore makes the copy in a
// temporary folder and then renames this folder to dst. So dst never contains an incomplete copy.
func cloneStore(src, dst string) error {
	if _, err := os.Stat(dst); err == nil {
		return nil
	}
	work := dst + ".new"
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	var folders []string // relative to src
	err := filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		to := filepath.Join(work, rel)
		switch {
		case d.IsDir():
			folders = append(folders, rel)
			return cloneFolder(path, to)
		case isDatabase(rel):
			return copyFile(path, to)
		}
		return os.Link(path, to) //nolint:gosec // only this hypervisor changes the store
	})
	for _, rel := range slices.Backward(folders) { // each new file in a folder changes the time of the folder
		if err == nil {
			err = copyTimes(filepath.Join(src, rel), filepath.Join(work, rel))
		}
	}
	if err != nil {
		return fmt.Errorf("copying the images: %w", err)
	}
	return os.Rename(work, dst)
}

// isDatabase reports whether a file of the store is a database of containerd. The databases are in
// the folders of plugins. The files of images are in deeper folders, and can have any name.
func isDatabase(rel string) bool {
	return strings.HasSuffix(rel, ".db") && strings.Count(rel, "/") < 2
}

// cloneFolder creates an empty folder with the owner, the mode and the attributes of the folder
// src. The folders of an image must keep their owners. They must also keep the attribute
// trusted.overlay.opaque. A folder with this attribute hides the files of lower layers.
func cloneFolder(src, dst string) error {
	var s unix.Stat_t
	if err := unix.Lstat(src, &s); err != nil {
		return &fs.PathError{Op: "lstat", Path: src, Err: err}
	}
	if err := errors.Join(os.Mkdir(dst, 0o700), os.Lchown(dst, int(s.Uid), int(s.Gid))); err != nil {
		return err
	}
	if err := unix.Chmod(dst, s.Mode&0o7777); err != nil { // Mkdir drops the sticky bit and the permission bits of the umask
		return &fs.PathError{Op: "chmod", Path: dst, Err: err}
	}
	names := make([]byte, 64<<10) // the kernel's limit: xattr(7)
	n, err := unix.Llistxattr(src, names)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "listxattr", Path: src, Err: err}
	}
	value := make([]byte, 64<<10)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		n, err := unix.Lgetxattr(src, name, value)
		if err == nil {
			err = unix.Lsetxattr(dst, name, value[:n], 0)
		}
		if err != nil {
			return fmt.Errorf("attribute %s of %s: %w", name, src, err)
		}
	}
	return nil
}

func copyTimes(src, dst string) error {
	var s unix.Stat_t
	if err := unix.Lstat(src, &s); err != nil {
		return &fs.PathError{Op: "lstat", Path: src, Err: err}
	}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, dst, []unix.Timespec{s.Atim, s.Mtim}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "utimensat", Path: dst, Err: err}
	}
	return nil
}

func copyFile(src, dst string) (err error) {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
