package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// cluster is the Kubernetes half of a lab: everything but the cloud.
type cluster struct {
	*plan
	units map[string]*unit
	kube  *kubernetes.Clientset
}

// startCluster boots a real control plane and stops it when the test ends.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("boots a control plane")
	}
	kube, err := filepath.Abs("../bin/kube")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := Default()
	c.DataDir, c.Self, c.Kube, c.PortBase = Dir(t.TempDir()), self, kube, new(int)
	say := func(format string, args ...any) { t.Logf(format, args...) }
	unlock, err := open(c.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock)
	p, err := prepare(c, say)
	if err != nil {
		t.Fatalf("%v (is ../bin/kube built? `make build`)", err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	table, err := p.components(log)
	if err != nil {
		t.Fatal(err)
	}
	var rows []component
	d := &diary{dir: p.dir}
	for _, row := range table {
		switch row.name {
		case "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok":
			rows = append(rows, row)
			d.now.Components = append(d.now.Components, running{Name: row.name})
		}
	}
	units, err := newUnits(rows)
	if err != nil {
		t.Fatal(err)
	}
	cl := &cluster{plan: p, units: map[string]*unit{}}
	for _, u := range units {
		cl.units[u.name] = u
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	s := &supervisor{dir: p.dir, diary: d, say: say, grace: p.Grace}
	began := time.Now()
	go func() { done <- s.run(ctx, units) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for _, u := range units {
		select {
		case <-u.ready:
		case err := <-done:
			done <- err
			t.Fatal(err)
		case <-time.After(time.Minute):
			t.Fatalf("%s is not ready; its log ends:\n%s", u.name, p.dir.lastWords(u.name))
		}
	}
	t.Logf("all ready after %s", time.Since(began))
	if cl.kube, err = p.kubernetes(); err != nil {
		t.Fatal(err)
	}
	return cl
}

// register creates a node as a kubelet with --cloud-provider=external would.
func (c *cluster) register(t *testing.T, name string) {
	t.Helper()
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kwok.x-k8s.io/node": "fake"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: uninitializedTaint, Value: "true", Effect: corev1.TaintEffectNoSchedule}}},
	}
	if _, err := c.kube.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// await waits until ok returns nil, and fails with what it said last.
func await(t *testing.T, what string, ok func() error) {
	t.Helper()
	began := time.Now()
	var last error
	if !eventually(time.Minute, func() bool { last = ok(); return last == nil }) {
		t.Fatalf("%s: %v", what, last)
	}
	t.Logf("%s after %s", what, time.Since(began).Round(time.Millisecond))
}

func (c *cluster) readyCondition(ctx context.Context, name string) (corev1.NodeCondition, *corev1.Node, error) {
	n, err := c.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return corev1.NodeCondition{}, nil, err
	}
	for _, cond := range n.Status.Conditions {
		if cond.Type == corev1.NodeReady {
			return cond, n, nil
		}
	}
	return corev1.NodeCondition{}, n, errors.New("no Ready condition")
}

func TestCluster(t *testing.T) {
	c := startCluster(t)
	ctx := t.Context()

	c.register(t, "node-1")
	await(t, "kwok makes the node Ready", func() error {
		cond, n, err := c.readyCondition(ctx, "node-1")
		switch {
		case err != nil:
			return err
		case cond.Status != corev1.ConditionTrue:
			return fmt.Errorf("Ready is %s", cond.Status)
		case n.Spec.PodCIDR == "":
			return errors.New("no pod network")
		case len(n.Status.Addresses) != 0:
			return fmt.Errorf("has addresses %v that only the cloud may give", n.Status.Addresses)
		}
		for _, taint := range n.Spec.Taints {
			if taint.Key == uninitializedTaint {
				return nil
			}
		}
		return fmt.Errorf("has lost its taint: %v", n.Spec.Taints)
	})

	// Nothing that was acknowledged is lost with etcd, and all come back.
	for _, name := range []string{"etcd", "kube-apiserver", "kwok"} {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "before-" + name}}
		if _, err := c.kube.CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		before := c.running(t, name)
		if err := unix.Kill(before.Process.PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		await(t, name+" is back", func() error {
			switch now := c.running(t, name); {
			case now.Process.PID == before.Process.PID:
				return errors.New("the same process")
			case !now.Ready:
				return errors.New("not ready")
			}
			return nil
		})
		await(t, "what was written before is there", func() error {
			_, err := c.kube.CoreV1().ConfigMaps("default").Get(ctx, cm.Name, metav1.GetOptions{})
			return err
		})
	}

	lease := func() (*metav1.MicroTime, string) {
		l, err := c.kube.CoordinationV1().Leases("kube-node-lease").Get(ctx, "node-1", metav1.GetOptions{})
		if err != nil || l.Spec.HolderIdentity == nil {
			return &metav1.MicroTime{}, ""
		}
		return l.Spec.RenewTime, *l.Spec.HolderIdentity
	}
	began := time.Now()
	await(t, "the new kwok has the lease", func() error {
		if at, who := lease(); who == "" || at.Time.Before(began.Add(-time.Second)) {
			return fmt.Errorf("renewed at %s by %q", at, who)
		}
		return nil
	})
	powerOff(t, c, "null")
	at, _ := lease()
	await(t, "a node without the label falls silent", func() error {
		cond, _, err := c.readyCondition(ctx, "node-1")
		if err == nil && cond.Status == corev1.ConditionTrue {
			err = errors.New("still Ready")
		}
		return err
	})
	if later, _ := lease(); !later.Equal(at) {
		t.Errorf("the lease was renewed at %s, after the node was powered off at %s", later, at)
	}
	powerOff(t, c, `"fake"`)
	await(t, "it is Ready again with it", func() error {
		cond, _, err := c.readyCondition(ctx, "node-1")
		if err == nil && cond.Status != corev1.ConditionTrue {
			err = fmt.Errorf("Ready is %s", cond.Status)
		}
		return err
	})
}

func powerOff(t *testing.T, c *cluster, value string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"kwok.x-k8s.io/node":%s}}}`, value)
	if _, err := c.kube.CoreV1().Nodes().Patch(t.Context(), "node-1", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) running(t *testing.T, name string) running {
	t.Helper()
	r, err := c.dir.record()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range r.Components {
		if x.Name == name {
			return x
		}
	}
	t.Fatalf("no component %s", name)
	return running{}
}
