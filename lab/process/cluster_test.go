package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/cloudsim-dev/allinone/internal/eventually"
	"github.com/cloudsim-dev/allinone/lab"
)

// cluster contains all components of a lab except the cloud.
type cluster struct {
	*plan
	units map[string]*unit
	kube  *kubernetes.Clientset
}

// startCluster boots a real control plane and stops it when the test ends.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane: run make e2e")
	}
	kube, err := filepath.Abs("../../bin/kube")
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
	unlock, err := lockDir(t.Context(), c.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock)
	p, err := prepare(t.Context(), c, say)
	if err != nil {
		t.Fatalf("%v (is bin/kube built? `make build`)", err)
	}
	t.Cleanup(p.releaseNetworks)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	table, err := p.componentTable(log)
	if err != nil {
		t.Fatal(err)
	}
	var rows []component
	d := &recordFile{dir: p.dir}
	for _, row := range table {
		switch row.name {
		case "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok":
			rows = append(rows, row)
			d.now.Components = append(d.now.Components, componentEntry{Name: row.name})
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
	go func() { done <- s.runUnits(ctx, units) }()
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
			t.Fatalf("%s is not ready; its log ends:\n%s", u.name, p.dir.lastWords(u.logName()))
		}
	}
	t.Logf("all components are ready after %s", time.Since(began))
	if cl.kube, err = p.adminClient(); err != nil {
		t.Fatal(err)
	}
	return cl
}

// await waits until check returns nil. After a timeout, await fails the test with the last error of
// check.
func await(t *testing.T, condition string, check func() error) {
	t.Helper()
	began := time.Now()
	eventually.NoError(t, condition, check)
	t.Logf("%s after %s", condition, time.Since(began).Round(time.Millisecond))
}

// TestCluster runs all its checks on one cluster, because booting a cluster is slow.
func TestCluster(t *testing.T) {
	c := startCluster(t)
	c.testNode(t)
	c.testPods(t)
	c.testWhoMayDoWhat(t)
	c.testKwokRunsNoCommands(t)
	c.testKilled(t, "etcd")
	c.testKilled(t, "kube-apiserver")
	c.testKwokKilled(t)
	c.testPowerOff(t)
}

const nodeName = "node-1"

// testNode registers a node, as the hypervisor does.
func (c *cluster) testNode(t *testing.T) {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{"kwok.x-k8s.io/node": "fake"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: uninitializedTaint, Value: "true", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: nodeName}},
			Capacity:  corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3"), corev1.ResourcePods: resource.MustParse("9")},
		},
	}
	if _, err := c.kube.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the node is Ready and has a pod network", func() error {
		now, err := c.node(t)
		switch {
		case err != nil:
			return err
		case now.Spec.PodCIDR == "":
			return errors.New("no pod network")
		}
		return nil
	})
	got, err := c.node(t)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(n.Status.Addresses, got.Status.Addresses); diff != "" {
		t.Error("a component other than the cloud changed the addresses of the Node (-want +got):\n", diff)
	}
	if diff := cmp.Diff(n.Status.Capacity, got.Status.Capacity); diff != "" {
		t.Error("a component other than the hypervisor changed the capacity of the Node (-want +got):\n", diff)
	}
	if !slices.ContainsFunc(got.Spec.Taints, func(t corev1.Taint) bool { return t.Key == uninitializedTaint }) {
		t.Errorf("a component other than the cloud controller manager removed the taint %s of the Node: got the taints %v", uninitializedTaint, got.Spec.Taints)
	}
}

// node returns the Node with the name nodeName. If the Node is not Ready, node also returns an
// error that contains the conditions of the Node.
func (c *cluster) node(t *testing.T) (*corev1.Node, error) {
	n, err := c.kube.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for _, cond := range n.Status.Conditions {
		if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
			return n, nil
		}
	}
	return n, fmt.Errorf("not Ready: %v", n.Status.Conditions)
}

// tolerantPodSpec returns the spec of a pod that tolerates all taints, including the taint of an
// uninitialized node. The pod uses the host's network, because no hypervisor assigns pod addresses
// in this test.
func tolerantPodSpec() corev1.PodSpec {
	return corev1.PodSpec{
		HostNetwork: true,
		Containers:  []corev1.Container{{Name: "main", Image: "none"}},
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
	}
}

func (c *cluster) runPod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: tolerantPodSpec()}
	pods := c.kube.CoreV1().Pods("default")
	// The API server refuses pods until the controller manager has created the service
	// account "default" of the namespace.
	await(t, "pod "+name+" is created", func() error {
		_, err := pods.Create(t.Context(), p, metav1.CreateOptions{})
		return err
	})
	await(t, "pod "+name+" is Ready", func() (err error) {
		p, err = pods.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && !podReady(p) {
			err = fmt.Errorf("%s, %v", p.Status.Phase, p.Status.Conditions)
		}
		return err
	})
	return p
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func (c *cluster) testPods(t *testing.T) {
	c.runPod(t, "one")
	unready := []byte(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
	pods := c.kube.CoreV1().Pods("default")
	if _, err := pods.Patch(t.Context(), "one", types.StrategicMergePatchType, unready, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	await(t, "a pod with a wrong Ready condition becomes Ready", func() error {
		p, err := pods.Get(t.Context(), "one", metav1.GetOptions{})
		if err == nil && !podReady(p) {
			err = fmt.Errorf("%v", p.Status.Conditions)
		}
		return err
	})

	spec := tolerantPodSpec()
	spec.RestartPolicy = corev1.RestartPolicyNever
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}}}
	jobs := c.kube.BatchV1().Jobs("default")
	if _, err := jobs.Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "a job is complete", func() error {
		j, err := jobs.Get(t.Context(), "job", metav1.GetOptions{})
		if err == nil && j.Status.Succeeded != 1 {
			err = fmt.Errorf("%+v", j.Status)
		}
		return err
	})
	if err := pods.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "a deleted pod disappears", func() error {
		_, err := pods.Get(t.Context(), "one", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the pod exists: %v", err)
	})
}

func (c *cluster) testWhoMayDoWhat(t *testing.T) {
	for _, tc := range []struct {
		user, verb, group, resource, sub, namespace string
		may                                         bool
	}{
		{lab.UserCCM, "delete", "", "nodes", "", "", true},
		{lab.UserCCM, "patch", "", "services", "status", "default", true},
		{lab.UserCCM, "create", "", "services", "", "default", false},
		{lab.UserCCM, "get", "", "secrets", "", "kube-system", false},
		{lab.UserCCM, "update", "coordination.k8s.io", "leases", "", "kube-node-lease", false},
		{lab.UserKwok, "update", "coordination.k8s.io", "leases", "", "kube-node-lease", true},
		{lab.UserKwok, "update", "", "nodes", "", "", false},
		{lab.UserKwok, "create", "", "pods", "", "default", false},
		{lab.UserHypervisor, "create", "", "nodes", "", "", true},
		{lab.UserHypervisor, "delete", "", "nodes", "", "", false},
		{lab.UserHypervisor, "patch", "", "pods", "status", "default", true},
		{lab.UserHypervisor, "patch", "", "pods", "", "default", false},
		{lab.UserHypervisor, "create", "coordination.k8s.io", "leases", "", "kube-node-lease", false},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: tc.user, Groups: []string{"system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: tc.verb, Group: tc.group, Resource: tc.resource, Subresource: tc.sub, Namespace: tc.namespace},
		}}
		got, err := c.kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got.Status.Allowed != tc.may {
			t.Errorf("%s may %s %s/%s: %v, want %v", tc.user, tc.verb, tc.resource, tc.sub, got.Status.Allowed, tc.may)
		}
	}
	conf, err := c.pki.ClientTLS(lab.ClusterCA, "admin")
	if err != nil {
		t.Fatal(err)
	}
	conf.Certificates = nil
	for _, path := range []string{"/readyz", "/version"} {
		err := lab.HTTPProbe(c.ports.url("https", "kube-apiserver")+path, conf)(t.Context())
		if err == nil || !strings.Contains(err.Error(), "401") {
			t.Errorf("%s without a client certificate: got error %v, want status 401", path, err)
		}
	}
}

func (c *cluster) testKwokRunsNoCommands(t *testing.T) {
	for _, path := range []string{"/exec/default/one/main?command=id&output=1", "/containerLogs/default/one/main", "/portForward/default/one", "/debug/pprof/"} {
		err := lab.HTTPProbe(c.ports.url("http", "kwok")+path, nil)(t.Context())
		if err == nil || !strings.Contains(err.Error(), "Debug endpoints are disabled") {
			t.Errorf(`kwok's %s: got error %v, want "Debug endpoints are disabled"`, path, err)
		}
	}
}

// testKilled proves that a killed component starts again, and that the kill does not destroy data.
func (c *cluster) testKilled(t *testing.T, name string) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "before-" + name}}
	if _, err := c.kube.CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
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
	await(t, "the data from before the restart exist", func() error {
		_, err := c.kube.CoreV1().ConfigMaps("default").Get(t.Context(), cm.Name, metav1.GetOptions{})
		return err
	})
}

// testKwokKilled proves that a new kwok takes the Leases over at once. The new kwok does not wait
// until the Leases of the dead kwok expire.
func (c *cluster) testKwokKilled(t *testing.T) {
	old, err := c.lease(t)
	if err != nil {
		t.Fatal(err)
	}
	c.testKilled(t, "kwok")
	began := time.Now()
	await(t, "the new kwok holds the lease", func() error {
		l, err := c.lease(t)
		if err == nil && *l.Spec.HolderIdentity == *old.Spec.HolderIdentity {
			err = fmt.Errorf("the old kwok %s still holds the lease", *l.Spec.HolderIdentity)
		}
		return err
	})
	if took := time.Since(began); took > leaseSeconds*time.Second/2 { // an expiry would take three quarters of leaseSeconds at least
		t.Errorf("the new kwok waited %s for the old lease", took)
	}
	c.runPod(t, "two")
}

func (c *cluster) lease(t *testing.T) (*coordinationv1.Lease, error) {
	return c.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), nodeName, metav1.GetOptions{})
}

// testPowerOff proves that kwok stops renewing a node's Lease when the node loses
// kwok's label. The hypervisor removes this label when the machine is off.
func (c *cluster) testPowerOff(t *testing.T) {
	c.label(t, "null")
	var at metav1.MicroTime
	var since time.Time
	const quiet = leaseSeconds * time.Second / 4 * 3 / 2 // one and a half renewal intervals
	await(t, "the lease of the node is not renewed", func() error {
		l, err := c.lease(t)
		if err != nil {
			return err
		}
		if !l.Spec.RenewTime.Equal(&at) {
			at, since = *l.Spec.RenewTime, time.Now()
		}
		if time.Since(since) < quiet {
			return fmt.Errorf("the lease was renewed at %s", at)
		}
		return nil
	})
	dead := []byte(`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"KubeletNotReady","message":"node is shutting down"}]}}`)
	if _, err := c.kube.CoreV1().Nodes().Patch(t.Context(), nodeName, types.StrategicMergePatchType, dead, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	c.label(t, `"fake"`)
	await(t, "the node is Ready after it got its label again", func() error { _, err := c.node(t); return err })
	await(t, "the lease of the node is renewed", func() error {
		l, err := c.lease(t)
		if err == nil && l.Spec.RenewTime.Equal(&at) {
			err = errors.New("it is not")
		}
		return err
	})
}

func (c *cluster) label(t *testing.T, value string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"kwok.x-k8s.io/node":%s}}}`, value)
	if _, err := c.kube.CoreV1().Nodes().Patch(t.Context(), nodeName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) running(t *testing.T, name string) componentEntry {
	t.Helper()
	r, err := c.dir.record()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(r.Components, func(x componentEntry) bool { return x.Name == name })
	if i < 0 {
		t.Fatalf("component %s is missing", name)
	}
	return r.Components[i]
}
