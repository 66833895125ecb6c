package process

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func executable(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPreflight(t *testing.T) {
	base := t.TempDir()
	self, kube := executable(t, filepath.Join(base, "bin", "allinone")), executable(t, filepath.Join(base, "bin", "kube"))
	for _, name := range upstreamPrograms {
		executable(t, filepath.Join(base, "upstream", name))
	}
	executable(t, filepath.Join(base, "some", "etcd"))
	executable(t, filepath.Join(base, "multi", "kube"))
	if err := os.WriteFile(filepath.Join(base, "plain"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(base, "none"), 0o755); err != nil {
		t.Fatal(err)
	}
	busy, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	missing := filepath.Join(base, "nowhere")

	for _, tc := range []struct {
		name               string
		self, kube, binDir string
		takePort           string
		want               []string // a part of each line of the error, in order
	}{
		{name: "all is well", self: self, kube: kube},
		{name: "upstream's own", self: self, kube: missing, binDir: filepath.Join(base, "upstream")},
		{name: "one of upstream's", self: self, kube: kube, binDir: filepath.Join(base, "some")},
		{name: "another multi-call binary", self: self, kube: missing, binDir: filepath.Join(base, "multi")},
		{name: "not built", self: self, kube: missing, want: []string{
			"cannot run the program for etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok at " + missing + ": no such file or directory; run `make build`, or",
		}},
		{name: "not executable", self: self, kube: filepath.Join(base, "plain"), want: []string{"is not executable; run `make build`"}},
		{name: "an empty folder", self: self, kube: kube, binDir: filepath.Join(base, "none"), want: []string{"--kube-bin-dir " + filepath.Join(base, "none") + " has neither the program kube nor one of the Kubernetes programs: etcd"}},
		{name: "all at once", self: missing, kube: missing, takePort: "etcd", want: []string{
			"cannot run the program allinone at " + missing, "program for etcd, ", "for etcd cannot be used: address already in use; stop the program that uses it, or choose other ports with --port-base",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := freePorts()
			if err != nil {
				t.Fatal(err)
			}
			if tc.takePort != "" {
				p[tc.takePort] = busy.Addr().(*net.TCPAddr).Port
			}
			got := ""
			if err := preflight(Config{DataDir: Dir(base), Self: tc.self, Kube: tc.kube, KubeBinDir: tc.binDir}, p); err != nil {
				got = err.Error()
			}
			lines := strings.Split(got, "\n")
			if got == "" {
				lines = nil
			}
			if len(lines) != len(tc.want) {
				t.Fatalf("%d lines, want %d:\n%s", len(lines), len(tc.want), got)
			}
			for i, want := range tc.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("line %d is %q, want %q", i+1, lines[i], want)
				}
			}
		})
	}
}

func TestChoosePorts(t *testing.T) {
	last := portsFrom(20000)
	incomplete := portsFrom(20000)
	delete(incomplete, portNames[len(portNames)-1])
	scattered := portsByName{portNames[0]: 20000, portNames[1]: 20007}
	for _, tc := range []struct {
		name string
		base *int
		last portsByName
		want portsByName // nil means any free ports
	}{
		{"no ports chosen before", nil, nil, portsFrom(DefaultPortBase)},
		{"ports of the last start", nil, last, last},
		{"incomplete ports of an older release", nil, incomplete, portsFrom(20000)},
		{"incomplete ports without a base", nil, scattered, portsFrom(DefaultPortBase)},
		{"given port base", new(30000), last, portsFrom(30000)},
		{"free ports", new(0), nil, nil},
		{"free ports instead of default ports", new(0), portsFrom(DefaultPortBase), nil},
		{"free ports of the last start", new(0), last, last},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := choosePorts(tc.base, tc.last)
			if err != nil {
				t.Fatal(err)
			}
			if tc.want == nil {
				tc.want = got
				seen := map[int]bool{}
				for _, port := range got {
					seen[port] = true
				}
				if len(seen) != len(portNames) || seen[DefaultPortBase] {
					t.Errorf("ports: got %v, want %d different ports without %d", got, len(portNames), DefaultPortBase)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := portsFrom(8180).url("https", "kube-apiserver"); got != "https://127.0.0.1:"+strconv.Itoa(8181) {
		t.Error(got)
	}
}

func TestConfigSaysAllThatIsWrong(t *testing.T) {
	good := Default()
	good.DataDir, good.Self, good.Kube = "/somewhere", "/bin/allinone", "/bin/kube"
	if err := good.Validate(); err != nil {
		t.Errorf("Validate of a valid configuration: %v", err)
	}
	bad := Config{DataDir: "relative", Nodes: "virtual", Instances: -1, Profile: "slow", PortBase: new(65530), Grace: -1, ECRPlugin: "relative"}
	err := bad.Validate()
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{"--data-dir", "program allinone", "program kube", `nodes must be hollow, real or none, got "virtual"`, "instances", "profile", fmt.Sprintf("--port-base must be 0 or between 1024 and %d", maxPort+1-len(portNames)), "timeout", "grace", "--ecr-credential-provider needs --nodes real and --dialect aws", "--ecr-credential-provider must be an absolute path"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in the error %v", want, err)
		}
	}
}

func TestCheckSpace(t *testing.T) {
	d := newDir(t)
	if err := checkSpace(d, 1); err != nil {
		t.Error(err)
	}
	if err := checkSpace(d, 1<<62); err == nil || !strings.Contains(err.Error(), "free space") {
		t.Errorf(`checkSpace for 4 EiB: got error %v, want "free space"`, err)
	}
}
