package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/cloudsim-dev/allinone/internal/backoff"
	"github.com/cloudsim-dev/allinone/internal/shell"
	"github.com/cloudsim-dev/allinone/lab"
)

// Run runs a lab until ctx ends. It stops all components before it returns, and
// returns nil after a clean stop. It returns an error, for example, if the Config
// is invalid, if preflight found a problem, or if a component does not start.
// The error wraps ErrNodesNotReady if nodes were not Ready in time, and were still
// not Ready when ctx ended.
//
// The lab restarts components that die. If the calling process dies, by a
// second Ctrl-C or by SIGKILL, the kernel kills all programs of the lab.
func Run(ctx context.Context, log *slog.Logger, c Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	began := time.Now()
	say := c.progressLogger(log, began)
	unlock, err := lockDir(ctx, c.DataDir)
	if err != nil {
		return err
	}
	defer unlock()
	swept, err := c.DataDir.killLeftovers(ctx)
	if err != nil {
		return err
	}
	if len(swept) > 0 {
		say("ended processes of an earlier run: %s", strings.Join(swept, ", "))
	}
	p, err := prepare(ctx, c, say)
	if err != nil {
		return err
	}
	defer p.releaseNetworks()
	return p.supervise(ctx, log, say)
}

// progressLogger returns a function that passes a step to c.Progress and writes it to the log.
func (c Config) progressLogger(log *slog.Logger, began time.Time) func(format string, args ...any) {
	var saying sync.Mutex
	return func(format string, args ...any) {
		line := fmt.Sprintf(format, args...)
		log.Info(line)
		if c.Progress != nil {
			saying.Lock()
			defer saying.Unlock()
			c.Progress(fmt.Sprintf("%6.1fs  %s", time.Since(began).Seconds(), line))
		}
	}
}

// lockRelease is the maximum time for which lockDir waits for the lock. A killed lab holds its
// lock until the last thread of its process has ended.
const lockRelease = time.Second

// lockDir takes the lock of a data dir. If the folder is not yet a data dir, lockDir makes it a
// data dir. It waits up to lockRelease for the lock.
func lockDir(ctx context.Context, d Dir) (unlock func(), err error) {
	if err := d.claim(); err != nil {
		return nil, err
	}
	unlock, err = d.lockDir()
	for end := time.Now().Add(lockRelease); errors.Is(err, errLocked) && time.Now().Before(end) && ctx.Err() == nil; unlock, err = d.lockDir() {
		backoff.Sleep(ctx, lockRelease/50)
	}
	if errors.Is(err, errLocked) {
		pid := "another process"
		if r, err := d.record(); err == nil && r.Supervisor.isRunning() {
			pid = fmt.Sprintf("pid %d", r.Supervisor.PID)
		}
		return nil, fmt.Errorf("a lab already runs in %s (%s); stop it with `allinone down --data-dir %s`", d, pid, shell.Word(string(d)))
	}
	if err != nil {
		return nil, err
	}
	if err := d.forgetDamaged(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// prepare checks the host, reserves networks, and writes all files that the components read. If
// prepare returns no error, the caller must call releaseNetworks of the plan.
func prepare(ctx context.Context, c Config, say func(string, ...any)) (*plan, error) {
	m, err := c.DataDir.memory()
	if err != nil {
		return nil, err
	}
	p := &plan{Config: c, dir: c.DataDir, began: time.Now(), programs: programSet{c.Kube, c.KubeBinDir}, say: say}
	if p.ports, err = choosePorts(c.PortBase, m.Ports); err != nil {
		return nil, err
	}
	claim := lab.ClaimHollowNetworks
	if c.Nodes == lab.Real {
		claim = lab.ClaimRealNetworks
	}
	p.networks, p.releaseNetworks, err = claim(ctx, m.Networks)
	if err := errors.Join(preflight(c, p.ports), err); err != nil {
		if p.releaseNetworks != nil {
			p.releaseNetworks()
		}
		return nil, err
	}
	if err := errors.Join(p.findInternet(), p.writeAll(m)); err != nil {
		p.releaseNetworks()
		return nil, err
	}
	return p, nil
}

// writeAll records the ports and networks in lab.json. It creates missing
// keys and certificates, and writes the files of the components.
func (p *plan) writeAll(m memory) error {
	m.Ports, m.Networks = p.ports, p.networks
	if err := p.DataDir.writeMemory(m); err != nil {
		return err
	}
	p.pki = lab.PKI{Dir: p.DataDir.path("pki"), Now: time.Now(), Servers: p.serverIPs()}
	made, err := p.pki.Ensure()
	if err != nil {
		return err
	}
	if len(made) > 0 {
		p.say("created %d keys and certificates in %s", len(made), p.pki.Dir)
	}
	return p.writeFiles()
}

// writeFiles writes the files that people and components read.
func (p *plan) writeFiles() error {
	server := p.ports.url("https", "kube-apiserver")
	for _, user := range []string{"kube-controller-manager", "kube-scheduler", "ccm", "kwok", "hypervisor", "csi-sidecars", "console"} {
		if err := p.pki.WriteKubeconfig(p.dir.configFile(user+".kubeconfig"), server, user); err != nil {
			return fmt.Errorf("kubeconfig of %s: %w", user, err)
		}
	}
	if err := p.pki.WriteKubeconfig(p.dir.Kubeconfig(), server, "admin"); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	links := map[string]string{"allinone": p.Self}
	if kubectl := p.programs.find("kubectl"); isExecutable(kubectl.path) == nil {
		links["kubectl"] = kubectl.path
	}
	for name, target := range links {
		if err := p.dir.link(name, target); err != nil {
			return err
		}
	}
	return errors.Join(
		lab.WriteFile(p.dir.configFile("kwok.yaml"), lab.KwokConfig),
		lab.WriteFile(p.dir.EnvFile(), []byte(envScript(p.dir, p.ports.url("http", "cloudsim")))),
		p.writeEgress(), p.writeWhereCloud())
}

// writeWhereCloud writes cloud.yaml. This file contains the URLs of the cloud, of its dialects and
// of the console, and the paths of the token files. The commands of the CLI read this file.
func (p *plan) writeWhereCloud() error {
	where := map[string]any{
		"url": p.ports.url("http", "cloudsim"), "tokenFile": p.dir.AdminToken(), "console": p.ports.url("http", "console"),
	}
	dialects := map[string]any{}
	for _, d := range p.Dialects {
		dialects[d] = map[string]string{"url": p.ports.url("http", dialectPort(d)), "tokenFile": p.dir.tokenFile(d)}
	}
	if len(dialects) > 0 {
		where["dialects"] = dialects
	}
	raw, err := yaml.Marshal(where)
	if err != nil {
		return err
	}
	return lab.WriteFile(p.dir.path("cloud.yaml"), raw)
}

// supervise runs the components, reports when all are ready, and waits until they stop.
func (p *plan) supervise(ctx context.Context, log *slog.Logger, say func(string, ...any)) error {
	table, err := p.componentTable(log)
	if err != nil {
		return err
	}
	units, err := newUnits(table)
	if err != nil {
		return err
	}
	d := &recordFile{dir: p.dir, now: record{Supervisor: identify(os.Getpid()), Nodes: p.Nodes, Internet: p.internet, Since: p.began}}
	for _, c := range table {
		d.now.Components = append(d.now.Components, componentEntry{Name: c.name, Address: c.address, Log: p.dir.LogFile(c.logName())})
	}
	if err := d.update(func(*record) {}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &supervisor{dir: p.dir, diary: d, say: say, grace: p.Grace}
	var background sync.WaitGroup
	var late, unready error
	background.Go(func() {
		nodes, err := p.announce(ctx, units, d, say)
		if late = err; late != nil {
			cancel(late)
		}
		if late == nil && !nodes.AllReady() {
			unready = p.awaitLateNodes(ctx, nodes, say)
		}
		<-ctx.Done()
		say("stopping everything")
	})
	if p.ownProxy() {
		background.Go(func() { p.renewProxy(ctx, log) })
	}
	err = s.runUnits(ctx, units)
	cancel(nil)
	background.Wait()
	var left error
	if p.Nodes == lab.Real { // machines that the hypervisor did not take over
		_, left = p.dir.sweepMachines(context.WithoutCancel(ctx), nil)
	}
	say("everything has stopped")
	return errors.Join(err, late, unready, left, d.close())
}

// announce waits until all components are ready, and reports that they are ready. If a component is
// not ready in time, announce returns an error, and the lab ends. If nodes are not Ready in time,
// announce only reports these nodes, and the lab continues, so that the user can search for the
// cause.
func (p *plan) announce(ctx context.Context, units []*unit, d *recordFile, say func(string, ...any)) (nodes NodesReport, err error) {
	deadline, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	for _, u := range units {
		select {
		case <-u.ready:
		case <-deadline.Done():
			if ctx.Err() != nil {
				return nodes, nil
			}
			return nodes, notReady(ctx, p, u)
		}
	}
	if p.Nodes != lab.None && p.CCM != NoCCM {
		nodes, err = p.awaitNodes(deadline, 100*time.Millisecond)
		if err != nil {
			return nodes, err
		}
		if ctx.Err() != nil {
			return NodesReport{}, nil
		}
		if nodes.AllReady() {
			say("every running instance has a Ready node")
		} else {
			say("after %s, %s", p.Timeout, nodes)
		}
	}
	if err := d.update(func(r *record) { r.Ready = true }); err != nil {
		return nodes, err
	}
	if p.OnReady != nil {
		report, err := Status(p.dir)
		if err != nil {
			return nodes, err
		}
		report.Machines = &nodes
		p.OnReady(report)
	}
	return nodes, nil
}

// ErrNodesNotReady means that some nodes were not Ready in time, and were still not Ready when
// the lab ended.
var ErrNodesNotReady = errors.New("not all nodes are Ready")

// awaitLateNodes waits until all nodes are Ready, and then tells the user that they are Ready. If
// ctx ends before all nodes are Ready, it returns an error that wraps ErrNodesNotReady and contains
// its last report about the nodes. If this last report contains only a read error, the returned
// error contains the argument report, which is an earlier report of announce.
func (p *plan) awaitLateNodes(ctx context.Context, report NodesReport, say func(string, ...any)) error {
	nodes, err := p.awaitNodes(ctx, 2*time.Second)
	if err != nil {
		return err
	}
	if !nodes.AllReady() {
		if nodes.Error == "" {
			report = nodes
		}
		return fmt.Errorf("%w: %s", ErrNodesNotReady, report)
	}
	say("every running instance has a Ready node")
	return nil
}

// notReady returns the error for a unit that is not ready in time. If the unit waits
// for another unit, the error names that unit. notReady calls the probe of the
// component once more to get the reason.
func notReady(ctx context.Context, p *plan, u *unit) error {
	for _, need := range u.needs {
		if !isClosed(need.ready) {
			return notReady(ctx, p, need)
		}
	}
	reason := errors.New("the component gave no reason")
	if u.component.ready != nil {
		if err := u.component.ready(ctx); err != nil {
			reason = err
		}
	}
	return fmt.Errorf("%s is not ready after %s: %w; see %s", u.name, p.Timeout, reason, p.dir.LogFile(u.logName()))
}
