package real

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudsim-dev/allinone/lab/real/archive"
)

// loadedDir is a folder in Config.Dir. It contains one OCI archive for each image that a user
// has loaded into all machines.
const loadedDir = "loaded"

// Images has the methods that load, list and remove images on the machines of a running hypervisor.
type Images struct {
	// Dir and Name are the values in the hypervisor's Config.
	Dir, Name string
	// Nodes lists names of nodes. The methods use only the machines of these nodes. If Nodes is
	// empty, the methods use all machines.
	Nodes []string
}

// workPattern matches the temporary folders in loadedDir. A command uses a temporary folder while
// it loads an image.
const workPattern = "load-*"

// removeUnfinishedLoads deletes the files of interrupted loads, for example after a user killed the
// command. It also deletes the files of a load that still runs, and this load then fails.
func removeUnfinishedLoads(dir string) error {
	unfinished, err := glob(filepath.Join(dir, loadedDir), workPattern)
	for _, work := range unfinished {
		err = errors.Join(err, os.RemoveAll(work))
	}
	return err
}

// OnMachines is an image and the names of the nodes that have the image.
type OnMachines struct {
	Name   string   `json:"name"`
	Digest string   `json:"digest"`
	Size   string   `json:"size"`
	Nodes  []string `json:"nodes"`
}

// preparedImage is a checked image in a separate OCI archive.
type preparedImage struct {
	name, file string
	size       int64 // bytes that the image needs on the disk of a machine
}

// readImages writes each image of an archive into a separate OCI archive in the folder work. If r
// is not nil, readImages reads the archive from r. If r is nil, it reads the archive or OCI layout
// directory at path. If the archive contains only one image, and this image has no name, readImages
// gives this image the name imageName.
func readImages(ctx context.Context, path string, r io.Reader, imageName, work string) (_ []preparedImage, err error) {
	var all []archive.Image
	if r != nil {
		all, err = archive.Read(ctx, r, work)
	} else {
		all, err = archive.Open(ctx, path, work)
	}
	if err != nil {
		return nil, err
	}
	var done []preparedImage
	for n, m := range all {
		if m.Name == "" && (imageName == "" || len(all) > 1) {
			return nil, errors.New("the archive has an image without a name; save the image with its name or, if the archive contains only this image, set the name with --name")
		}
		if m.Name == "" {
			if m.Name, err = archive.FullName(imageName); err != nil {
				return nil, err
			}
		}
		p := preparedImage{name: m.Name, file: filepath.Join(work, strconv.Itoa(n)+".tar")}
		if p.size, err = writeImage(m, p.file); err != nil {
			return nil, err
		}
		done = append(done, p)
	}
	return done, nil
}

func writeImage(m archive.Image, file string) (size int64, err error) {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	unpacked, err := m.Write(out)
	if err != nil {
		return 0, err
	}
	packed, err := out.Seek(0, io.SeekCurrent)
	return packed + unpacked, err
}

type runningMachine struct {
	node string
	ctr  ctr // client of its containerd
}

// runningMachines returns the running machines, sorted by node, and the names of the machines that
// are off. If m.Nodes is not empty, it returns only the machines of these nodes. In this case, it
// returns an error if one of these nodes has no running machine.
func (m Images) runningMachines() (running []runningMachine, off []string, err error) {
	all, err := listHierarchies()
	if err != nil {
		return nil, nil, err
	}
	dirs, err := glob(m.Dir, "machines/*")
	if err != nil {
		return nil, nil, err
	}
	for _, dir := range dirs {
		id := filepath.Base(dir)
		node, err := folder(dir).hostname()
		if err != nil {
			return nil, nil, err
		}
		node = cmp.Or(node, id) // a machine that has never run has no host name
		if len(m.Nodes) > 0 && !slices.Contains(m.Nodes, node) {
			continue
		}
		c := cgroup{all, m.Name}.child(id)
		pid, err := c.firstPID()
		if err != nil {
			return nil, nil, err
		}
		if pid == 0 {
			off = append(off, node)
			continue
		}
		running = append(running, runningMachine{node, ctrIn(c, pid)})
	}
	for _, node := range m.Nodes {
		if !slices.ContainsFunc(running, func(r runningMachine) bool { return r.node == node }) {
			return nil, nil, fmt.Errorf("--nodes: node %q has no running machine; the command `images list` shows the nodes", node)
		}
	}
	slices.SortFunc(running, func(a, b runningMachine) int { return cmp.Compare(a.node, b.node) })
	return running, off, nil
}

// Load loads the images of an archive into the running machines of the nodes in m.Nodes. If m.Nodes
// contains a node without a running machine, Load returns an error. If m.Nodes is empty, Load uses
// all running machines, and machines that are created later also get the images.
//
// If r is not nil, Load reads the archive from r. If r is nil, it reads the archive or OCI layout
// directory at path. If the archive contains only one image, and this image has no name, Load gives
// this image the name imageName.
//
// Load returns the names of the images. If m.Nodes is empty, Load also returns the names of the
// nodes with a machine that is off. These machines do not get the images, even when they start
// again.
func (m Images) Load(ctx context.Context, path string, r io.Reader, imageName string) (names, off []string, err error) {
	if err := os.MkdirAll(filepath.Join(m.Dir, loadedDir), 0o700); err != nil {
		return nil, nil, err
	}
	if _, _, err := m.runningMachines(); err != nil {
		return nil, nil, err
	}
	if info, err := os.Stat(path); r == nil && err == nil && info.Mode().IsRegular() {
		if err := m.checkFreeSpace("the archive", 2*info.Size()); err != nil { // space for an uncompressed copy, and for a separate archive of each image
			return nil, nil, err
		}
	}
	work, err := os.MkdirTemp(filepath.Join(m.Dir, loadedDir), workPattern)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	all, err := readImages(ctx, path, r, imageName, work)
	if err != nil {
		return nil, nil, err
	}
	on, off, err := m.runningMachines()
	if err != nil {
		return nil, nil, err
	}
	for _, p := range all {
		names = append(names, p.name)
	}
	var need int64
	for _, p := range all {
		need += p.size * int64(len(on)+1) // new machines share one more copy
	}
	if err := m.checkFreeSpace("copying the images to the machines", need); err != nil {
		return nil, nil, err
	}
	if len(m.Nodes) == 0 { // before the imports, so that a machine that starts meanwhile also has the images
		for i, p := range all {
			to := m.loadedPath(p.name)
			if err := os.Rename(p.file, to); err != nil {
				return nil, nil, err
			}
			all[i].file = to
		}
	}
	for _, machine := range on {
		for _, p := range all {
			if err := machine.ctr.importFile(ctx, p.file); err != nil {
				return nil, nil, fmt.Errorf("node %s: image %s: %w; run the command again", machine.node, p.name, err)
			}
		}
	}
	return names, off, nil
}

func (m Images) loadedPath(name string) string {
	return filepath.Join(m.Dir, loadedDir, fmt.Sprintf("%x.tar", sha256.Sum256([]byte(name))))
}

// checkFreeSpace returns an error if the disk has less than neededBytes of free space. The
// error begins with the value of the parameter object, for example "the archive".
func (m Images) checkFreeSpace(object string, neededBytes int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(m.Dir, &fs); err != nil {
		return fmt.Errorf("free space of %s: %w", m.Dir, err)
	}
	if free := int64(fs.Bavail) * fs.Bsize; neededBytes > free { //nolint:gosec // no disk has 8 EiB
		return fmt.Errorf("%s needs %d MiB on the disk of %s, but only %d MiB are free; delete files, load fewer images, or load into fewer machines (--nodes)", object, neededBytes>>20, m.Dir, free>>20)
	}
	return nil
}

// imageLine is a line of `ctr images list`.
type imageLine struct{ name, digest, size string }

// parseList parses the output of `ctr images list`: REF TYPE DIGEST SIZE UNIT PLATFORMS LABELS.
func parseList(out string) (all []imageLine) {
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 5 || f[0] == "REF" {
			continue
		}
		all = append(all, imageLine{f[0], f[2], f[3] + " " + f[4]})
	}
	return all
}

// List returns the images of the running machines, sorted by name and digest. It omits image
// records that have a digest instead of a name.
func (m Images) List(ctx context.Context) ([]OnMachines, error) {
	on, _, err := m.runningMachines()
	if err != nil {
		return nil, err
	}
	var all []OnMachines
	for _, machine := range on {
		out, err := machine.ctr.runImages(ctx, nil, "list")
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", machine.node, err)
		}
		for _, l := range parseList(out) {
			if isDigest(l.name) {
				continue
			}
			at := slices.IndexFunc(all, func(o OnMachines) bool { return o.Name == l.name && o.Digest == l.digest })
			if at < 0 {
				all = append(all, OnMachines{Name: l.name, Digest: l.digest, Size: l.size})
				at = len(all) - 1
			}
			all[at].Nodes = append(all[at].Nodes, machine.node)
		}
	}
	slices.SortFunc(all, func(a, b OnMachines) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Digest, b.Digest))
	})
	return all, nil
}

// isDigest reports whether an image record of containerd has a digest instead of a name and tag.
// containerd's CRI plugin creates records with digests.
func isDigest(name string) bool {
	return strings.HasPrefix(name, "sha256:") || strings.Contains(name, "@")
}

// Remove removes an image from the running machines of the nodes in m.Nodes. If m.Nodes is empty,
// Remove uses all running machines, and machines that are created later do not get the image
// either. Running containers of the image continue to run. Remove returns an error for a built-in
// image, and for an image that it does not find.
func (m Images) Remove(ctx context.Context, imageName string) error {
	name, err := archive.FullName(imageName)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(builtImages(""), func(b image) bool { return b.ref == name }) {
		return fmt.Errorf("image %s is a built-in image of each machine and cannot be removed", name)
	}
	on, _, err := m.runningMachines()
	if err != nil {
		return err
	}
	found := false
	if len(m.Nodes) == 0 {
		err := os.Remove(m.loadedPath(name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		found = err == nil
	}
	for _, machine := range on {
		removed, err := removeFrom(ctx, machine.ctr, name)
		if err != nil {
			return fmt.Errorf("node %s: %w", machine.node, err)
		}
		found = found || removed
	}
	if !found {
		return fmt.Errorf("no running machine has the image %s; the command `images list` shows the images", name)
	}
	return nil
}

// removeFrom removes an image from one containerd, and reports whether the image existed.
func removeFrom(ctx context.Context, client ctr, name string) (bool, error) {
	out, err := client.runImages(ctx, nil, "list")
	if err != nil {
		return false, err
	}
	names := withRecords(parseList(out), name)
	if len(names) == 0 {
		return false, nil
	}
	_, err = client.runImages(ctx, nil, slices.Concat([]string{"remove", "--sync"}, names)...)
	return err == nil, err
}

// withRecords returns the names of the image records to delete. The first record has the given
// name. If the image has no other name, the result also includes the image's records that have a
// digest in place of a name.
func withRecords(lines []imageLine, name string) []string {
	index := slices.IndexFunc(lines, func(l imageLine) bool { return l.name == name })
	if index < 0 {
		return nil
	}
	names, digests := []string{name}, []string(nil)
	for _, l := range lines {
		switch {
		case l.digest != lines[index].digest || l.name == name:
		case !isDigest(l.name):
			return names
		default:
			digests = append(digests, l.name)
		}
	}
	return append(names, digests...)
}
