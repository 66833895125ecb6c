package credprovider_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/credprovider"
)

// ecr is the Go package path and the version of AWS's credential plugin. The
// benchmark also measures this plugin.
const ecr = "k8s.io/cloud-provider-aws/cmd/ecr-credential-provider@v1.37.0"

// buildProgram runs the go command with the given arguments to build a program.
// It returns the path of the program. If the build fails, for example without a
// network, it returns "".
func buildProgram(b *testing.B, args ...string) string {
	b.Helper()
	dir := b.TempDir()
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "CGO_ENABLED=0")
	cmd.Dir = filepath.Join("testdata", "bare")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Logf("%v: %v: %s", args, err, out)
		return ""
	}
	all, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(all) != 1 {
		b.Fatal(all, err)
	}
	return all[0]
}

type shape struct {
	name, path, stdin string
	args              []string
	fails             bool
	took              []time.Duration
}

func (s *shape) run(b *testing.B) {
	b.Helper()
	cmd := exec.Command(s.path, s.args...)
	cmd.Stdin = strings.NewReader(s.stdin)
	begin := time.Now()
	out, err := cmd.Output()
	s.took = append(s.took, time.Since(begin))
	if (err != nil) != s.fails {
		b.Fatalf("%s: %v: %s", s.name, err, out)
	}
}

func (s *shape) median() float64 {
	slices.Sort(s.took)
	return s.took[len(s.took)/2].Seconds() * 1000
}

// BenchmarkProgram measures the time from the start of a program to its exit.
// In each iteration it runs several variants of this project's plugin. It also
// runs AWS's credential plugin, and a program with the name "bare", which only
// reads and writes JSON. AWS's plugin gets an invalid request, so it makes no
// calls. The metrics are the medians in milliseconds, and the ratios of these
// medians to the median of bare. The variant "plugin" calls the metadata
// service and the cloud in each run, so it takes longer than bare. The
// benchmark fails if the median of this variant is more than six times the
// median of bare. If the benchmark runs fewer than 20 iterations, it omits this
// check.
func BenchmarkProgram(b *testing.B) {
	path := program(b)
	_, cfg := node(b)
	cached := cfg
	cached.CacheDir = filepath.Join(b.TempDir(), "cache")
	good := ask(host+"/team/app", "")
	bare := &shape{name: "bare", path: buildProgram(b, "install", "-ldflags=-s -w", "."), stdin: good}
	plugin := &shape{name: "plugin", path: path, args: []string{"--config=" + writeConfig(b, cfg)}, stdin: good}
	all := []*shape{bare, plugin,
		{name: "cached", path: path, args: []string{"--config=" + writeConfig(b, cached)}, stdin: good},
		{name: "refusing", path: path, args: []string{"--config=" + writeConfig(b, cfg)}, stdin: strings.Replace(good, credprovider.APIVersion, "v0", 1), fails: true},
	}
	whole := filepath.Join(filepath.Dir(path), "allinone")
	if _, err := os.Stat(whole); err == nil {
		all = append(all, &shape{name: "allinone", path: whole, args: []string{"credprovider", "--config=" + writeConfig(b, cfg)}, stdin: good})
	}
	if other := buildProgram(b, "install", "-ldflags=-s -w", ecr); other != "" {
		all = append(all, &shape{name: "ecr-refusing", path: other, stdin: strings.Replace(good, credprovider.APIVersion, "v0", 1), fails: true})
	}
	if bare.path == "" {
		b.Fatal("the program for the comparison cannot be built")
	}
	for _, s := range all { // the first run, which loads the program file into memory, does not count
		s.run(b)
		s.took = nil
	}
	for b.Loop() {
		for _, s := range all {
			s.run(b)
		}
	}
	b.ReportMetric(0, "ns/op")
	yard := bare.median()
	for _, s := range all {
		b.ReportMetric(s.median(), "ms-"+s.name)
		if s != bare {
			b.ReportMetric(s.median()/yard, s.name+"-of-bare")
		}
	}
	if ratio := plugin.median() / yard; ratio > 6 && len(plugin.took) >= 20 {
		b.Errorf("the plugin takes %.1f times as long as an empty program", ratio)
	}
}
