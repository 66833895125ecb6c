package compose

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/lab"
)

// composeFile holds the parts of docker-compose.yaml that the tests read.
type composeFile struct {
	Services map[string]composeService
	Volumes  map[string]any
}

type composeService struct {
	Command     []string
	Volumes     []string
	NetworkMode string `json:"network_mode"`
	User        string
	ReadOnly    bool     `json:"read_only"`
	CapDrop     []string `json:"cap_drop"`
	CapAdd      []string `json:"cap_add"`
	SecurityOpt []string `json:"security_opt"`

	DeviceCgroupRules []string `json:"device_cgroup_rules"`

	Privileged bool
	Profiles   []string
}

func readCompose(t *testing.T) composeFile {
	t.Helper()
	raw, err := os.ReadFile("../../docker-compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var f composeFile
	if err := yaml.Unmarshal(raw, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

func (s composeService) volumesByPath(t *testing.T) map[string]string {
	t.Helper()
	m := map[string]string{}
	for _, v := range s.Volumes {
		parts := strings.Split(v, ":")
		if len(parts) < 2 || strings.HasPrefix(parts[0], "/") || strings.HasPrefix(parts[0], ".") {
			t.Errorf("mount %s has no named volume", v)
			continue
		}
		m[parts[1]] = parts[0]
	}
	return m
}

// If a flag of a service contains the path of a file, the service has a volume for this file. Init
// creates the file with mode 0600. The exceptions are files with tokens: the cloud and Seed write
// these files later.
func TestComposeFilesAreThere(t *testing.T) {
	dir := Dir(t.TempDir())
	if _, err := dir.Init("https://127.0.0.1:8181", lab.Real); err != nil {
		t.Fatal(err)
	}
	written := []string{"/lab/cloudsim/admin.token", "/lab/ccm/cloud.token", "/lab/csi/cloud.token", "/lab/console/cloud.token"} // the cloud and Seed write these files later
	for name, s := range readCompose(t).Services {
		mounts := s.volumesByPath(t)
		for _, a := range s.Command {
			_, file, _ := strings.Cut(a, "=")
			if !strings.HasPrefix(file, "/lab/") {
				continue
			}
			if mounts[filepath.Dir(file)] == "" {
				t.Errorf("service %s has no volume for %s", name, a)
			}
			info, err := os.Stat(filepath.Join(string(dir), strings.TrimPrefix(file, "/lab")))
			switch {
			case slices.Contains(written, file):
			case err != nil:
				t.Errorf("service %s has the argument %s, but no service writes this file: %v", name, a, err)
			case info.Mode().Perm() != 0o600:
				t.Errorf("file %s: got mode %v, want 0600", file, info.Mode())
			}
		}
	}
}

// For each volume, the image contains a folder that has the right owner. Without this folder,
// Docker would create a folder that belongs to root.
func TestComposeVolumes(t *testing.T) {
	raw, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, made, _ := strings.Cut(string(raw), "for s in ")
	made, _, _ = strings.Cut(made, ";")
	folders := []string{"/data", "/cloud", "/run/proxy", "/run/proxy-admin", "/run/csi"}
	for _, s := range strings.Fields(made) {
		folders = append(folders, "/lab/"+s)
	}
	f := readCompose(t)
	for name, s := range f.Services {
		for at, volume := range s.volumesByPath(t) {
			if _, ok := f.Volumes[volume]; !ok {
				t.Errorf("service %s: volume %s is not declared", name, volume)
			}
			if !slices.Contains(folders, at) {
				t.Errorf("service %s: the Dockerfile creates no folder %s", name, at)
			}
			if volume == "init" && name != "init" {
				t.Errorf("service %s mounts the volume with all keys", name)
			}
		}
	}
	init := f.Services["init"].volumesByPath(t)
	for _, s := range serviceFiles {
		if init["/lab/"+s.name] != s.name {
			t.Errorf("service init has no volume for the files of service %s", s.name)
		}
	}
}

// The file .dockerignore excludes no source files that the build of the images needs.
func TestBuildContextIsWhole(t *testing.T) {
	raw, err := os.ReadFile("../../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		err := filepath.WalkDir(filepath.Join("../..", line), func(path string, _ fs.DirEntry, err error) error {
			if err == nil && (filepath.Ext(path) == ".go" || filepath.Base(path) == "go.mod") {
				t.Errorf("%s is missing in the build context, because of the line %s in .dockerignore", path, line)
			}
			return nil // an ignored path that does not exist excludes no files
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// For each zone of the default catalogue, docker-compose.yaml has a service that runs the machines
// of this zone. Each of these services has its own disk.
func TestComposeHasAHostInEachZone(t *testing.T) {
	services := readCompose(t).Services
	disks := map[string]string{}
	for _, z := range cloudsim.DefaultCatalogue().Zones {
		name := "node-" + z.Name
		s := services[name]
		if want := []string{"allinone", "compose", "machines", "--zone=" + z.Name}; len(s.Command) < len(want) || !slices.Equal(s.Command[:len(want)], want) {
			t.Errorf("service %s: got command %v, want %v and flags of image pulls", name, s.Command, want)
		}
		disk := s.volumesByPath(t)["/data"]
		if other := disks[disk]; disk == "" || other != "" {
			t.Errorf("service %s: got disk %q, want an own disk (other service with this disk: %q)", name, disk, other)
		}
		disks[disk] = name
	}
}

// Only the services for real machines get capabilities. The test recognizes these services by
// their names.
func TestComposeLimitsRights(t *testing.T) {
	for name, s := range readCompose(t).Services {
		if s.Privileged || !slices.Contains(s.CapDrop, "ALL") || !s.ReadOnly {
			t.Errorf("permissions of %s: privileged %v, dropped capabilities %v, writable %v", name, s.Privileged, s.CapDrop, !s.ReadOnly)
		}
		if name == "router" || strings.HasPrefix(name, "node-") {
			if d := cmp.Diff([]string{"real"}, s.Profiles); d != "" || len(s.CapAdd) == 0 {
				t.Errorf("service %s: got profiles %v and capabilities %v", name, s.Profiles, s.CapAdd)
			}
			if name == "router" && (len(s.CapAdd) > 4 || len(s.DeviceCgroupRules) > 0) {
				t.Errorf("service router: got capabilities %v and devices %v", s.CapAdd, s.DeviceCgroupRules)
			}
			continue
		}
		if s.User != "65532:65532" || len(s.CapAdd) > 0 || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("service %s: got user %s, capabilities %v and security options %v", name, s.User, s.CapAdd, s.SecurityOpt)
		}
	}
}

func TestComposeKeepsItsNodes(t *testing.T) {
	dir := Dir(t.TempDir())
	for _, step := range []struct {
		nodes lab.Nodes
		want  string
	}{
		{"both", `nodes must be hollow or real, got "both"`},
		{"", `nodes must be hollow or real, got ""`},
		{lab.Hollow, ""},
		{lab.Hollow, ""},
		{lab.Real, "the nodes of this cluster are hollow"},
		{lab.Hollow, ""},
	} {
		_, err := dir.Init("https://127.0.0.1:8181", step.nodes)
		if step.want == "" && err != nil || step.want != "" && (err == nil || !strings.Contains(err.Error(), step.want)) {
			t.Errorf("init with %q: got error %v, want %q", step.nodes, err, step.want)
		}
	}
	for name, err := range map[string]error{
		"machines": dir.Machines(t.Context(), slog.New(slog.DiscardHandler), nil, Pulls{}),
		"a router": dir.Route(t.Context(), slog.New(slog.DiscardHandler), false),
	} {
		if err == nil || !strings.Contains(err.Error(), "COMPOSE_PROFILES=real") {
			t.Errorf("%s in a cluster of hollow nodes: got error %v", name, err)
		}
	}
}

func TestComposedKeysAreKeptApart(t *testing.T) {
	dir := Dir(t.TempDir())
	made, err := dir.Init("https://127.0.0.1:8181", lab.Real)
	if err != nil || len(made) == 0 {
		t.Fatal(made, err)
	}
	if second, err := dir.Init("https://127.0.0.1:8181", lab.Real); err != nil || len(second) > 0 {
		t.Errorf("second init: got new files %v, error %v; want none", second, err)
	}
	signs := map[string]bool{}
	for _, ca := range []string{lab.ClusterCA, lab.EtcdCA, lab.FrontProxyCA, lab.ProxyCA} {
		found, err := filepath.Glob(filepath.Join(string(dir), "*", ca+".key"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			signs[filepath.Base(filepath.Dir(f))] = true
		}
	}
	if d := cmp.Diff(map[string]bool{"kube-controller-manager": true, "hypervisor": true, "machines": true}, signs); d != "" {
		t.Errorf("services with the key of a certificate authority (-want +got):\n%s", d)
	}
}
