package conform

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// These are the default values of Config.
const (
	DefaultTimeout  = 30 * time.Second
	DefaultObserve  = 8 * time.Second
	DefaultParallel = 8
	DefaultLimit    = 30 * time.Second
)

// cleanupTimeout is the longest time for the cleanup after one check.
const cleanupTimeout = time.Minute

// Config contains the inputs of a run.
type Config struct {
	// Kube is the client configuration for the API server. Its user must be able to write Nodes,
	// Leases, Services and Namespaces.
	Kube *rest.Config
	// Driver gives access to the cloud.
	Driver Driver
	// Subject is the CCM. If Subject is nil, a CCM must already run, and Run skips checks that
	// restart the CCM.
	Subject Subject
	// Capabilities replaces the capabilities from the driver. If Capabilities is nil, Run reads the
	// capabilities from the driver.
	Capabilities *Capabilities
	// Level is the lowest level of the checks that Run selects. The default is Should, which
	// selects all checks.
	Level Level
	// Focus matches the IDs of the checks to select. Skip matches the IDs of the checks to skip. A
	// nil Focus matches all checks, and a nil Skip matches no check.
	Focus, Skip *regexp.Regexp
	// Timeout is the longest time for one reaction of the CCM. The default is DefaultTimeout.
	Timeout time.Duration
	// Observe is the time during which a check verifies that the CCM does not react. The default is
	// DefaultObserve. Observe must be longer than the CCM's --node-monitor-period. Otherwise the
	// check can pass because it ends before the CCM reacts.
	Observe time.Duration
	// Limit is the longest time for one check. The time for the cleanup does not count. The default
	// is DefaultLimit. For long checks, for example with several restarts of the CCM, Run uses a
	// multiple of this time.
	Limit time.Duration
	// Parallel is the number of checks that run at the same time. The default is DefaultParallel.
	Parallel int
	// Budgets is true if Run must count the calls that the CCM makes for some actions. Run counts
	// these calls after all checks.
	Budgets bool
	// AllowExisting permits a cluster that has Nodes. If AllowExisting is false, Run returns an
	// error for a cluster with Nodes.
	AllowExisting bool
	// Progress gets the result of each check. Run never calls Progress twice at the same time.
	// Progress may be nil.
	Progress func(Result)
}

// Validate returns one error that lists all invalid fields.
func (c Config) Validate() error {
	var errs []error
	if c.Kube == nil {
		errs = append(errs, errors.New("the field Kube is missing: an API server is required"))
	}
	if c.Driver == nil {
		errs = append(errs, errors.New("the field Driver is missing"))
	}
	if c.Level != "" && c.Level != Must && c.Level != Should {
		errs = append(errs, fmt.Errorf("the field Level is %q: want %s or %s", c.Level, Must, Should))
	}
	for name, d := range map[string]time.Duration{"Timeout": c.Timeout, "Observe": c.Observe, "Limit": c.Limit} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("the field %s is %s: a time must not be negative", name, d))
		}
	}
	if c.Parallel < 0 {
		errs = append(errs, fmt.Errorf("the field Parallel is %d: want a positive number", c.Parallel))
	}
	if c.Capabilities != nil {
		errs = append(errs, c.Capabilities.checkKnownIssues())
	}
	return errors.Join(errs...)
}

// suite is one run.
type suite struct {
	Config
	driver *boundDriver
	kube   kubernetes.Interface
	caps   Capabilities
	seen   *observer
	run    string
	stop   context.CancelCauseFunc // ends the run early

	mu      sync.Mutex // protects report, and serializes Progress
	report  Report
	running sync.WaitGroup
}

// Run runs the selected checks and returns their results. It returns an error if no check could
// run. Run ends early if ctx ends, if the CCM ends by itself, or if the driver does not answer. In
// these cases, the remaining checks have the verdict Skip, and the field Incomplete of the report
// contains the reason. Run deletes the objects of each check, even if it ends early.
func Run(ctx context.Context, c Config) (Report, error) {
	if err := c.Validate(); err != nil {
		return Report{}, err
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Observe == 0 {
		c.Observe = DefaultObserve
	}
	if c.Limit == 0 {
		c.Limit = DefaultLimit
	}
	if c.Parallel == 0 {
		c.Parallel = DefaultParallel
	}
	config := rest.CopyConfig(c.Kube)
	config.QPS, config.Burst = -1, 0
	config.UserAgent = "cloudconform"
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return Report{}, err
	}
	s := &suite{Config: c, driver: &boundDriver{driver: c.Driver}, kube: kube, seen: newObserver(), run: "conform-" + strings.ToLower(rand.Text()[:6])}
	if err := s.prepare(ctx); err != nil {
		return Report{}, err
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := s.watchObjects(watching, ctx); err != nil {
		return Report{}, err
	}
	if c.Subject != nil {
		if err := c.Subject.Start(ctx); err != nil {
			return Report{}, fmt.Errorf("start the CCM: %w", err)
		}
		defer func() { _ = c.Subject.Kill() }()
	}
	running, halt := context.WithCancelCause(ctx)
	defer halt(nil)
	s.stop = halt
	s.runAll(running)
	if running.Err() != nil {
		s.report.Incomplete = reasonOf(running)
	}
	s.report.sort()
	return s.report, nil
}

// prepare reads the capabilities. If s.AllowExisting is false, it also checks that the cluster has
// no Nodes.
func (s *suite) prepare(ctx context.Context) error {
	if s.Capabilities != nil {
		s.caps = *s.Capabilities
	} else {
		asking, cancel := context.WithTimeoutCause(ctx, s.Limit, errLimit)
		defer cancel()
		caps, err := s.driver.Capabilities(asking)
		if err != nil {
			return fmt.Errorf("driver: capabilities: %w", err)
		}
		s.caps = caps
	}
	if err := s.caps.checkKnownIssues(); err != nil {
		return err
	}
	v, err := s.kube.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("API server: %w", err)
	}
	s.report = Report{Run: s.run, Provider: s.caps.Provider, Kubernetes: v.GitVersion, Began: time.Now().UTC().Truncate(time.Second)}
	if s.AllowExisting {
		return nil
	}
	nodes, err := s.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	if len(nodes.Items) > 0 {
		return fmt.Errorf("the cluster has %d Nodes, for example %s: use an empty cluster, or permit existing Nodes with --allow-existing", len(nodes.Items), nodes.Items[0].Name)
	}
	return nil
}

func (c Capabilities) checkKnownIssues() error {
	for id := range c.KnownIssues {
		if !slices.ContainsFunc(Checks(), func(c Check) bool { return c.ID == id }) {
			return fmt.Errorf("capabilities: knownIssues: there is no check with the ID %q", id)
		}
	}
	return nil
}

// watchObjects starts the observer, which runs until watchCtx ends. watchObjects returns when the
// observer has received the first list of each kind. If ctx ends earlier, watchObjects returns an
// error.
func (s *suite) watchObjects(watchCtx, ctx context.Context) error {
	f := informers.NewSharedInformerFactory(s.kube, 0)
	if err := s.seen.follow(f); err != nil {
		return err
	}
	f.Start(watchCtx.Done())
	for kind, synced := range f.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("watch %s: %w", kind, ctx.Err())
		}
	}
	return nil
}

// runAll first runs the checks that may run in parallel. Then it runs the exclusive checks one
// after the other.
func (s *suite) runAll(ctx context.Context) {
	watching, end := context.WithCancel(ctx)
	var watched sync.WaitGroup
	watched.Go(func() { s.watchSubject(watching) })
	slots := make(chan struct{}, s.Parallel)
	var exclusive []Check
	for _, c := range Checks() {
		if reason, selected := s.isSelected(c); !selected {
			continue
		} else if reason != "" {
			s.add(Result{ID: c.ID, Level: c.Level, Title: c.Title, Verdict: Skip, Reason: reason})
			continue
		}
		if c.exclusive {
			exclusive = append(exclusive, c)
			continue
		}
		slots <- struct{}{}
		s.running.Go(func() {
			defer func() { <-slots }()
			s.add(s.check(ctx, c))
		})
	}
	s.running.Wait()
	end()
	watched.Wait()
	for _, c := range exclusive {
		s.add(s.check(ctx, c))
	}
	if s.Budgets && ctx.Err() == nil {
		s.countCalls(ctx)
	}
}

// exitError returns an error if the CCM has ended by itself. If the CCM is a Command, the error
// also contains the last 1000 bytes of the CCM's log.
func (s *suite) exitError() error {
	if s.Subject == nil {
		return nil
	}
	err := s.Subject.Ended()
	if c, ok := s.Subject.(*Command); ok && err != nil {
		const tail = 1000
		return fmt.Errorf("%w; the end of its output: %s", err, Redact(string(c.logFrom(max(0, logSize(c)-tail)))))
	}
	return err
}

// watchSubject ends the run if the CCM ends by itself. watchSubject must not run at the same time
// as a check that restarts the CCM. Otherwise the restart can end the run.
func (s *suite) watchSubject(ctx context.Context) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		if err := s.exitError(); err != nil {
			s.stop(err)
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// checkAlive returns an error if the CCM has ended by itself, or if the driver does not
// answer.
func (s *suite) checkAlive(ctx context.Context) error {
	if err := s.exitError(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, evidenceTimeout)
	defer cancel()
	if _, err := s.driver.Capabilities(ctx); err != nil {
		return fmt.Errorf("the driver does not answer: %w", err)
	}
	return nil
}

func reasonOf(ctx context.Context) string {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return Redact(cause.Error())
	}
	return "the run was interrupted"
}

// isSelected reports whether s.Focus and s.Level select the check. If the run must skip a selected
// check, isSelected also returns the reason.
func (s *suite) isSelected(c Check) (reason string, selected bool) {
	switch {
	case s.Focus != nil && !s.Focus.MatchString(c.ID), s.Level == Must && c.Level != Must:
		return "", false
	case s.Skip != nil && s.Skip.MatchString(c.ID):
		return "the flag --skip matches the check", true
	case c.needsRestart && s.Subject == nil:
		return "the check restarts the CCM: start the CCM with --ccm-command", true
	case c.skipReason != nil:
		return c.skipReason(s.caps), true
	}
	return "", true
}

func (s *suite) add(r Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Results = append(s.report.Results, r)
	if s.Progress != nil {
		s.Progress(r)
	}
}

// check runs one check and removes its objects.
func (s *suite) check(ctx context.Context, c Check) Result {
	r := Result{ID: c.ID, Level: c.Level, Title: c.Title, Verdict: Pass}
	switch {
	case ctx.Err() != nil:
		r.Verdict, r.Reason = Skip, reasonOf(ctx)
		return r
	case s.driver.hangs.Load() >= maxHangs:
		r.Verdict, r.Reason = Skip, fmt.Sprintf("%d calls of the driver did not return", maxHangs)
		return r
	}
	began, logStart := time.Now(), logSize(s.Subject)
	e := &env{
		kube: s.kube, driver: s.driver, caps: s.caps, subject: s.Subject, seen: s.seen, run: s.run,
		prefix: s.run + "-" + strings.ReplaceAll(c.ID, ".", "-"), timeout: s.Timeout, observe: s.Observe, notLive: map[string]bool{},
	}
	beating, stop := context.WithCancel(ctx)
	var heart sync.WaitGroup
	heart.Go(func() { e.keepAlive(beating) })
	limit := s.Limit * time.Duration(max(c.limitFactor, 1))
	limited, end := context.WithTimeoutCause(ctx, limit, errLimit)
	defer end()
	err := c.run(limited, e)
	if err != nil && limited.Err() != nil {
		err = fmt.Errorf("%w of %s: %w", errLimit, limit, err)
	}
	if err != nil && ctx.Err() == nil {
		if dead := s.checkAlive(ctx); dead != nil {
			s.stop(dead)
		}
	}
	interrupted := ctx.Err() != nil
	cleaning, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), cleanupTimeout, errCleanup)
	defer cancel()
	cleanupErr := e.cleanup(cleaning)
	isMissing := errors.As(err, new(missingError)) && cleanupErr == nil
	err = errors.Join(err, cleanupErr)
	stop()
	heart.Wait()
	r.Took = time.Since(began)
	switch {
	case err == nil:
		return r
	case interrupted:
		r.Verdict, r.Reason = Skip, reasonOf(ctx)
		return r
	case isMissing:
		r.Verdict, r.Reason = Skip, err.Error()
		return r
	}
	r.Verdict, r.Reason = Fail, err.Error()
	if link := s.caps.KnownIssues[c.ID]; link != "" {
		r.Verdict, r.Reason = KnownIssue, link+": "+r.Reason
	}
	s.addEvidence(ctx, &r, e.prefix, began, logStart)
	return r
}
