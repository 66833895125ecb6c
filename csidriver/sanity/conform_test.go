package sanity

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/csidriver"
)

// These are the names of environment variables. The tests set these variables in the processes that
// they start. The variable SANITY_TEST_PROGRAM selects the program that TestMain runs.
const (
	envProgram  = "SANITY_TEST_PROGRAM"
	envSelf     = "SANITY_TEST_SELF"
	envToken    = "SANITY_TEST_TOKEN"
	envInstance = "SANITY_TEST_INSTANCE"
	envBug      = "SANITY_TEST_BUG"
	envFocus    = "SANITY_TEST_FOCUS"
)

// TestMain runs the tests. If envProgram is set, it runs the driver or csi-sanity instead.
func TestMain(m *testing.M) {
	switch os.Getenv(envProgram) {
	case "driver":
		fmt.Fprintln(os.Stderr, runDriver())
		os.Exit(1)
	case "csi-sanity":
		var failed failRecorder
		runSanity(&failed)
		if failed {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// failRecorder implements ginkgo.GinkgoTestingT. Its value is true after a spec has failed.
type failRecorder bool

func (f *failRecorder) Fail() { *f = true }

// runSanity runs the specs of csi-sanity for the controller, as the program csi-sanity does.
func runSanity(t ginkgo.GinkgoTestingT) {
	dir, err := os.MkdirTemp("", "csi-sanity-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		t.Fail()
		return
	}
	defer os.RemoveAll(dir)
	cfg := sanity.NewTestConfig()
	cfg.Address = os.Getenv("CSI_ENDPOINT")
	cfg.TargetPath, cfg.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
	cfg.TestVolumeSize, cfg.TestVolumeExpandSize = 1<<30, 2<<30
	cfg.TestVolumeMutableParameters = map[string]string{"iops": "4000"}
	cfg.IDGen = unusedIDs{new(atomic.Int64)}
	sanity.GinkgoTest(&cfg)
	gomega.RegisterFailHandler(ginkgo.Fail)
	suite, reporter := ginkgo.GinkgoConfiguration()
	reporter.Succinct, reporter.NoColor = true, true
	suite.FocusStrings = []string{cmp.Or(os.Getenv(envFocus), `\[(Group)?Controller [A-Za-z]+\]`)}
	ginkgo.RunSpecs(t, "csi-sanity", suite, reporter)
}

// runDriver serves CSI until the process is killed.
func runDriver() error {
	cfg := csidriver.Default()
	cfg.Endpoint, cfg.Cloud = os.Getenv("CSI_ENDPOINT"), &client.Client{
		URL: os.Getenv("CONFORM_API_URL"), Token: client.StaticToken(os.Getenv(envToken)), Project: "default", UserAgent: "driver",
		HTTP: &http.Client{Timeout: time.Minute, Transport: &buggyTransport{bug: os.Getenv(envBug), process: fmt.Sprint(time.Now().UnixNano()), lost: map[string]int{}}},
	}
	cfg.Node = csidriver.NodeConfig{Instance: cloudsim.InstanceID(os.Getenv(envInstance)), DisksDir: os.TempDir()}
	return csidriver.Run(context.Background(), slog.New(slog.NewTextHandler(os.Stderr, nil)), cfg)
}

// These are the bugs that buggyTransport adds to the driver. csi-sanity alone
// does not find these bugs.
const (
	bugRefuses = "refuses" // after a lost reply, the driver reports that the volume exists
	bugForgets = "forgets" // after a lost reply, the driver creates a disk with another name
	bugMemory  = "memory"  // the driver knows only the disks that its process has created
	bugTwice   = "twice"   // the driver sends each GET request twice
)

// buggyTransport changes the calls of the driver to the cloud, so that the
// driver seems to have a bug. The field bug selects the bug.
type buggyTransport struct {
	bug     string
	process string // unique text of this process

	mu   sync.Mutex
	lost map[string]int // number of create calls without a reply, by disk name
}

// RoundTrip implements http.RoundTripper.
func (b *buggyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.bug == bugTwice && r.Method == http.MethodGet {
		if resp, err := http.DefaultTransport.RoundTrip(r.Clone(r.Context())); err == nil {
			_ = resp.Body.Close()
		}
	}
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/disks") {
		return http.DefaultTransport.RoundTrip(r)
	}
	name, err := b.rename(r)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bug == bugRefuses && b.lost[name] > 0 {
		raw, err := json.Marshal(cloudsim.Problem{Status: http.StatusConflict, Kind: cloudsim.Exists, Detail: "the disk exists"})
		return &http.Response{StatusCode: http.StatusConflict, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(raw)), Request: r}, err
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.lost[name]++
	}
	return resp, err
}

// rename changes the name of the disk in a request if the bug is bugForgets or bugMemory. It
// returns the original name.
func (b *buggyTransport) rename(r *http.Request) (string, error) {
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return "", err
	}
	name := fmt.Sprint(body["name"])
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.bug {
	case bugForgets:
		body["name"] = fmt.Sprintf("x%d%s", b.lost[name], name[min(2, len(name)):])
	case bugMemory:
		body["name"] = fmt.Sprintf("x%s%s", b.process, name[min(20, len(name)):])
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return "", err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	return name, nil
}

// report is the part of report.json that the tests read.
type report struct {
	Incomplete string
	Results    []struct{ ID, Verdict, Reason string }
	Budgets    map[string]int
}

// check runs 'allinone conform csi' for a driver with the given bug. The parameter focus selects
// specs of csi-sanity. If focus is empty, csi-sanity runs all specs of the controller. check
// returns the report, and the output, which ends with the exit code.
func check(t *testing.T, bug, focus string, args ...string) (r report, out string) {
	t.Helper()
	allinone, err := filepath.Abs("../../bin/allinone")
	if err == nil {
		_, err = os.Stat(allinone)
	}
	if err != nil {
		t.Fatalf("run make build: %v", err)
	}
	cloud := cloudtest.Start(t)
	vm := instance(t, cloud)
	token, err := cloud.Token()
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), allinone, append([]string{
		"conform", "csi", "--upstream", cloud.URL, "--report", dir, "--timeout", "1m",
		"--driver-command", envProgram + `=driver exec "$` + envSelf + `"`, "--sanity-command", envProgram + `=csi-sanity exec "$` + envSelf + `"`,
	}, args...)...)
	cmd.Env = append(os.Environ(), envSelf+"="+self, envToken+"="+token, envInstance+"="+string(vm.ID), envBug+"="+bug, envFocus+"="+focus)
	text, err := cmd.CombinedOutput()
	out = fmt.Sprintf("%s%v", text, err)
	t.Log(out)
	raw, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	if left, err := cloud.ListDisks(t.Context(), cloudsim.ListOptions{}); bug == "" && (err != nil || len(left.Items) > 0) {
		t.Errorf("the disks %v remain (%v)", left.Items, err)
	}
	return r, out
}

const baseline = "testdata/baseline.json"

// grown matches the error of a run in which CreateVolume makes more calls to
// the cloud than the baseline allows.
var grown = regexp.MustCompile(`--baseline: 100 CreateVolume: \d+ calls, the baseline has \d+`)

// TestConform proves that the driver passes csi-sanity even if replies are lost and the driver
// crashes. It also proves that the driver does not make more calls to the cloud than the baseline
// allows. With SANITY_TEST_BASELINE=write, the test writes a new baseline.
func TestConform(t *testing.T) {
	t.Parallel()
	flag := "--baseline"
	if os.Getenv("SANITY_TEST_BASELINE") == "write" {
		flag = "--write-baseline"
	}
	r, out := check(t, "", "", flag, baseline)
	if !strings.HasSuffix(out, "4 PASS\n<nil>") || len(r.Results) != 4 {
		t.Errorf("got the results %+v, want 4 checks that pass", r.Results)
	}
}

// TestConformFindsBugs adds bugs to the driver. It proves that 'allinone
// conform csi' finds bugRefuses and bugForgets in the mode lostreply, and
// bugMemory in the mode crash. csi-sanity without these modes does not find
// these bugs. The test also proves that the flag --baseline finds bugTwice. With this
// bug, CreateVolume makes more calls to the cloud than the baseline allows.
func TestConformFindsBugs(t *testing.T) {
	t.Parallel()
	const specs = `CreateVolume should (return appropriate|not fail)`
	for bug, in := range map[string]string{bugRefuses: "lostreply", bugForgets: "lostreply", bugMemory: "crash"} {
		r, out := check(t, bug, specs)
		for _, x := range r.Results {
			want := "PASS"
			if x.ID == "csi.leaks" || x.ID == "csi."+in {
				want = "FAIL"
			}
			if x.Verdict != want {
				t.Errorf("%s: %s: got %s, want %s", bug, x.ID, x.Verdict, want)
			}
		}
		if leaks := out[max(0, strings.Index(out, "csi.leaks")):]; strings.Count(leaks, "the mode") != 1 || !strings.Contains(leaks, "the mode "+in+" leaves the volume disk-") {
			t.Errorf("%s: the output does not report a remaining volume for the mode %s only", bug, in)
		}
		if !strings.HasSuffix(out, "exit status 1") {
			t.Errorf(`%s: the output does not end with "exit status 1"`, bug)
		}
	}
	if _, out := check(t, bugTwice, specs, "--mode", "sanity", "--baseline", baseline); !grown.MatchString(out) || !strings.HasSuffix(out, "exit status 1") {
		t.Errorf(`bugTwice: got a grown call budget of CreateVolume: %t, "exit status 1": %t; want both`, grown.MatchString(out), strings.HasSuffix(out, "exit status 1"))
	}
}

// TestConformFailsWithoutRPC proves that 'allinone conform csi' fails if csi-sanity makes no RPC.
func TestConformFailsWithoutRPC(t *testing.T) {
	t.Parallel()
	r, out := check(t, "", "no such spec", "--mode", "sanity")
	if len(r.Results) != 2 || r.Results[0].Verdict != "FAIL" || !strings.Contains(r.Results[0].Reason, "no RPC of the controller succeeded") || !strings.HasSuffix(out, "exit status 1") {
		t.Errorf(`got the report %+v, want a FAIL because no RPC of the controller succeeded, and the output "exit status 1"`, r)
	}
}
