// Package csi tests the CSI driver of any cloud with csi-sanity, a test suite of Kubernetes for CSI
// drivers. The package needs a recording proxy between the driver and the HTTP API of the cloud.
// The proxy discards some replies of the cloud on purpose, and counts the calls of the driver. The
// package also kills the driver during calls to the cloud, and finds volumes that remain after the
// tests. It starts csi-sanity and the driver as separate programs.
package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/cloudsim-dev/allinone/conform"
	"github.com/cloudsim-dev/allinone/conform/proxy"
)

// Mode states how Run disturbs the driver during one run of csi-sanity.
type Mode string

// These are the modes, in the order of their runs.
const (
	Sanity    Mode = "sanity"    // no disturbance; the run counts the driver's calls to the cloud
	LostReply Mode = "lostreply" // in each RPC, the driver does not get the first reply to each kind of call that changes the cloud
	Crash     Mode = "crash"     // in attempt N of each RPC, the run kills the driver at the driver's call N to the cloud
)

// Modes returns all modes.
func Modes() []Mode { return []Mode{Sanity, LostReply, Crash} }

var modeTitles = map[Mode]string{
	Sanity:    "The driver passes csi-sanity",
	LostReply: "The driver passes csi-sanity while replies of the cloud are lost",
	Crash:     "The driver passes csi-sanity although the run kills the driver at each call to the cloud",
}

// leakCheck is the ID of the check that finds volumes and snapshots that remain after a run of
// csi-sanity.
const leakCheck = "csi.leaks"

// These are the default values of Config.
const (
	DefaultTimeout = 30 * time.Second
	DefaultLimit   = 10 * time.Minute
)

// Config contains the inputs of a run.
type Config struct {
	// Proxy is the recording proxy for the driver's calls to the cloud. The caller must run the
	// proxy's HTTP server, and must configure the driver to call the proxy.
	Proxy *proxy.Proxy
	// Driver is the command that starts the driver. Run sets the environment variable CSI_ENDPOINT
	// of this command to Endpoint.
	Driver conform.Command
	// Endpoint is the socket of the driver, such as unix:///run/csi.sock. If Endpoint is empty, the
	// run chooses a socket.
	Endpoint string
	// Sanity is the command that starts csi-sanity. Run sets the environment variable CSI_ENDPOINT
	// of this command to the socket that csi-sanity must use. The command must end with the exit
	// code 0 if all tests pass.
	Sanity conform.Command
	// Modes are the modes to run. If Modes is empty, all modes run.
	Modes []Mode
	// Timeout is the longest time for one RPC with its repetitions, and for one start of the
	// driver. The default is DefaultTimeout.
	Timeout time.Duration
	// Limit is the longest time for one mode. If a mode takes longer, the run ends. The default is
	// DefaultLimit.
	Limit time.Duration
	// Progress receives each result. It may be nil.
	Progress func(conform.Result)
}

// Validate returns an error for each field that is not valid.
func (c Config) Validate() error {
	var errs []error
	for name, given := range map[string]bool{"a command that starts the driver": c.Driver.Line != "", "a command that starts csi-sanity": c.Sanity.Line != "", "a recording proxy": c.Proxy != nil} {
		if !given {
			errs = append(errs, fmt.Errorf("%s is required", name))
		}
	}
	if !strings.HasPrefix(cmp.Or(c.Endpoint, "unix:///"), "unix:///") {
		errs = append(errs, fmt.Errorf("the endpoint is %q: want unix:///PATH", c.Endpoint))
	}
	for _, m := range c.Modes {
		if !slices.Contains(Modes(), m) {
			errs = append(errs, fmt.Errorf("there is no mode %q: want one of %v", m, Modes()))
		}
	}
	if c.Timeout < 0 || c.Limit < 0 {
		errs = append(errs, errors.New("the fields Timeout and Limit must not be negative"))
	}
	return errors.Join(errs...)
}

// Run runs csi-sanity once for each mode. It starts and kills the driver. The report has a result
// for each mode, and the result csi.leaks. If the modes contain Sanity, the report also has the
// call budgets. A call budget is a measured average, and not a limit. For example, the budget of
// CreateVolume is the number of calls to the cloud per 100 successful CreateVolume RPCs. If the run
// ends early, for example because the driver does not start, Report.Incomplete contains the
// reason. Run returns an error only if c is not valid, or if Run cannot create a temporary folder.
func Run(ctx context.Context, c Config) (conform.Report, error) {
	report := conform.Report{Run: "csi", Provider: "the CSI driver", Began: time.Now(), Results: []conform.Result{}}
	if err := c.Validate(); err != nil {
		return report, err
	}
	if len(c.Modes) == 0 {
		c.Modes = Modes()
	}
	c.Timeout, c.Limit = cmp.Or(c.Timeout, DefaultTimeout), cmp.Or(c.Limit, DefaultLimit)
	dir, err := os.MkdirTemp("", "csi-")
	if err != nil {
		return report, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // this folder contains the sockets
	c.Endpoint = cmp.Or(c.Endpoint, "unix://"+filepath.Join(dir, "driver.sock"))
	c.Driver.Env = append(slices.Clone(c.Driver.Env), "CSI_ENDPOINT="+c.Endpoint)
	s := &suite{Config: c, report: &report, remains: conform.Result{ID: leakCheck, Level: conform.Must, Title: "No volume and no snapshot remains after csi-sanity", Verdict: conform.Pass}}
	for _, m := range c.Modes {
		if err := s.runMode(ctx, m, filepath.Join(dir, string(m)+".sock")); err != nil {
			report.Incomplete = conform.Redact(err.Error())
			return report, nil
		}
	}
	s.add(s.remains)
	return report, nil
}

type suite struct {
	Config
	report  *conform.Report
	remains conform.Result
}

func (s *suite) add(r conform.Result) {
	s.report.Results = append(s.report.Results, r)
	if s.Progress != nil {
		s.Progress(r)
	}
}

// runMode runs csi-sanity once, in the mode m. csi-sanity uses the socket at socketPath. If
// runMode returns an error, the run is not complete.
func (s *suite) runMode(ctx context.Context, m Mode, socketPath string) (err error) {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, s.Limit, fmt.Errorf("the mode %s takes longer than %s", m, s.Limit))
	defer cancel()
	f := newFaults(m, s.Driver.Kill)
	s.Proxy.Intercept(f.choose, f.killDriver)
	d, err := newDriver(&s.Driver, s.Endpoint, s.Timeout)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.startProcess(ctx); err != nil {
		return err
	}
	if s.report.Provider, err = d.name(ctx); err != nil {
		return err
	}
	before, err := d.list(ctx)
	if err != nil {
		return err
	}
	fw := &forwarder{driver: d, faults: f, proxy: s.Proxy, timeout: s.Timeout, counted: map[string]count{}}
	failed, err := s.runSanity(ctx, m, fw, socketPath)
	if err != nil {
		return err
	}
	r := conform.Result{ID: "csi." + string(m), Level: conform.Must, Title: modeTitles[m], Verdict: conform.Pass, Took: time.Since(began)}
	if reason := strings.TrimSpace(fw.unprovenReason(m) + "\n" + failed); reason != "" {
		r.Verdict, r.Reason = conform.Fail, conform.Redact(reason)
	}
	if m == Sanity {
		s.report.Budgets = fw.callsPerRPC()
	}
	s.add(r)
	return s.compareLists(ctx, m, d, before)
}

// compareLists finds the volumes and snapshots that exist now, but did not exist before the run.
// The parameter oldIDs is the result of driver.list before the run.
func (s *suite) compareLists(ctx context.Context, m Mode, d *driver, oldIDs []string) error {
	after, err := d.list(ctx)
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(after, func(x string) bool { return slices.Contains(oldIDs, x) })
	switch {
	case len(left) > 0:
		s.remains.Verdict = conform.Fail
		s.remains.Reason = strings.TrimPrefix(fmt.Sprintf("%s; the mode %s leaves %s", s.remains.Reason, m, strings.Join(left, ", ")), "; ")
	case s.remains.Verdict == conform.Pass && !d.lists:
		s.remains.Verdict, s.remains.Reason = conform.Skip, "the driver does not implement ListVolumes"
	}
	return nil
}

// runSanity serves CSI on a socket, and runs csi-sanity with this socket. It returns the reason if
// csi-sanity fails.
func (s *suite) runSanity(ctx context.Context, m Mode, fw *forwarder, path string) (failed string, err error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return "", err
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(fw.handle))
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	defer func() {
		server.Stop()
		if e := <-served; !errors.Is(e, grpc.ErrServerStopped) { // Serve returns this error if Stop was called before Serve
			err = errors.Join(err, e)
		}
	}()
	sanity := s.Sanity
	sanity.Env = append(slices.Clone(sanity.Env), "CSI_ENDPOINT=unix://"+path)
	sanity.Log = strings.TrimSuffix(sanity.Log, ".log") + "-" + string(m) + ".log"
	if err := os.Remove(sanity.Log); err != nil && !errors.Is(err, os.ErrNotExist) { // the log of an earlier run
		return "", err
	}
	if err := sanity.Start(ctx); err != nil {
		return "", err
	}
	result := sanity.Wait(ctx)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case fw.fatalError() != nil:
		return "", fw.fatalError()
	case result != nil:
		return fmt.Sprintf("csi-sanity failed: %v; its output is in %s:\n%s", result, sanity.Log, failedTests(sanity.Log)), nil
	}
	return "", nil
}

const maxFailures = 40

// failedTests returns the lines of csi-sanity's output that name failed tests, or the end of the
// output if no line names a failed test.
func failedTests(path string) string {
	raw, _ := os.ReadFile(path) // csi-sanity may have failed before its first output
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	failed := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !strings.Contains(l, "[FAIL]") })
	if len(failed) == 0 {
		failed = lines[max(0, len(lines)-maxFailures):]
	}
	return strings.Join(slices.Compact(failed[:min(len(failed), maxFailures)]), "\n")
}
