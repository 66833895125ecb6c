package process

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/lab"
	"golang.org/x/sys/unix"
)

// upstreamPrograms lists the Kubernetes programs that every lab runs.
var upstreamPrograms = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"}

// minFiles is the minimum for the hard limit of open files in a process of the lab. The API server
// has an open socket for each watch, and the hypervisor has several open sockets for each node.
const minFiles = 4096

// minSpace is the minimum free disk space in bytes. etcd allocates 128 MiB in advance. If the disk
// does not have these 128 MiB, etcd ends with a stack trace.
const minSpace = 256 << 20

// preflight checks for problems that would stop the lab during its start. It returns one
// error with all problems. Each problem is one line and includes advice.
func preflight(c Config, p portsByName) error {
	return errors.Join(checkPrograms(c), checkMachines(c), checkEgress(c), checkFileLimit(), checkSpace(c.DataDir, minSpace), p.checkFree())
}

func checkPrograms(c Config) error {
	var errs []error
	if err := isExecutable(c.Self); err != nil {
		errs = append(errs, fmt.Errorf("cannot run the program allinone at %s: %w; run `make build`", c.Self, rootCause(err)))
	}
	if c.KubeBinDir != "" && !slices.ContainsFunc(append(upstreamPrograms, "kube"), func(name string) bool {
		return isExecutable(filepath.Join(c.KubeBinDir, name)) == nil
	}) {
		errs = append(errs, fmt.Errorf("--kube-bin-dir %s has neither the program kube nor one of the Kubernetes programs: %s", c.KubeBinDir, strings.Join(upstreamPrograms, ", ")))
	}
	missing := map[string][]string{} // program names by the path of the missing file
	all := programSet{c.Kube, c.KubeBinDir}
	for _, name := range upstreamPrograms {
		if path := all.find(name).path; isExecutable(path) != nil {
			missing[path] = append(missing[path], name)
		}
	}
	for path, names := range missing {
		errs = append(errs, fmt.Errorf("cannot run the program for %s at %s: %w; run `make build`, or set --kube-bin-dir to a folder with Kubernetes' own programs",
			strings.Join(names, ", "), path, rootCause(isExecutable(path))))
	}
	return errors.Join(errs...)
}

// checkEgress checks that this process can read the egress configuration.
// kube-apiserver checks the content of the file.
func checkEgress(c Config) error {
	if c.EgressConfig == "" {
		return nil
	}
	f, err := os.Open(c.EgressConfig)
	if err != nil {
		return fmt.Errorf("--egress-selector-config-file: %w; `allinone proxy config` writes one", err)
	}
	return f.Close()
}

// checkMachines checks that a lab with real nodes runs as root, and can use its programs and image
// archives. Doctor also checks capabilities and kernel features.
func checkMachines(c Config) error {
	if c.Nodes != lab.Real {
		return nil
	}
	var errs []error
	if os.Geteuid() != 0 {
		errs = append(errs, errors.New("real nodes need root: run the command with sudo, or use --nodes hollow"))
	}
	if info, err := os.Stat(c.Archives); c.Archives != "" && (err != nil || !info.IsDir()) {
		errs = append(errs, fmt.Errorf("--image-archives %s is not a folder", c.Archives))
	}
	if c.ECRPlugin != "" {
		if err := isExecutable(c.ECRPlugin); err != nil {
			errs = append(errs, fmt.Errorf("--ecr-credential-provider: %w; `make aws` builds this program", err))
		}
	}
	missing := map[string]error{}
	for name, path := range c.realPrograms().Required() {
		if err := isExecutable(path); err != nil {
			missing[name] = err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		errs = append(errs, fmt.Errorf("cannot use %s for real nodes: %w; run `make build machine`", name, missing[name]))
	}
	return errors.Join(errs...)
}

// checkFileLimit checks the hard limit, because programs in Go raise their soft limit to
// the hard limit.
func checkFileLimit() error {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return fmt.Errorf("reading the limit of open files: %w", err)
	}
	if lim.Max < minFiles {
		return fmt.Errorf("the hard limit of open files is %d: as root, raise it to %d with `ulimit -Hn %d`, and start the lab in the same shell", lim.Max, minFiles, minFiles)
	}
	return nil
}

// checkSpace checks that the data dir has enough free disk space. It does not count the space that
// the file system reserves for root.
func checkSpace(d Dir, need uint64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(string(d), &fs); err != nil {
		return fmt.Errorf("reading the free space of data dir %s: %w", d, err)
	}
	if free := fs.Bavail * uint64(fs.Bsize); free < need {
		return fmt.Errorf("data dir %s has %d MiB of free space; a lab needs %d MiB: delete files, or choose another folder with --data-dir", d, free>>20, need>>20)
	}
	return nil
}

// link makes bin/NAME a symbolic link to target. It replaces an older link.
func (d Dir) link(name, target string) error {
	at := d.path("bin", name)
	if now, err := os.Readlink(at); err == nil && now == target {
		return nil
	}
	if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Symlink(target, at)
}
