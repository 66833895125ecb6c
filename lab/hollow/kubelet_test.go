package hollow_test

import (
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/lab/hollow"
)

// The Node of a new instance is like a Node that a kubelet with an external
// cloud provider creates. The Node lacks the fields that come from the cloud.
// Then kwok makes the Node Ready.
func TestRegisters(t *testing.T) {
	b := newBench(t)
	b.create("one", "sim-1b")
	n := b.awaitNode("one", "Ready", isReady)

	arch := runtime.GOARCH
	type facts struct {
		Labels, Annotations map[string]string
		Taints              []string
		ProviderID          string
		Addresses           []corev1.NodeAddress
		CPU, Memory, Pods   string
		Allocatable         string
		OS, Arch            string
	}
	var taints []string
	for _, taint := range n.Spec.Taints {
		taints = append(taints, taint.ToString())
	}
	got := facts{
		n.Labels, n.Annotations, taints, n.Spec.ProviderID, n.Status.Addresses,
		n.Status.Capacity.Cpu().String(), n.Status.Capacity.Memory().String(), n.Status.Capacity.Pods().String(),
		n.Status.Allocatable.Memory().String(),
		n.Status.NodeInfo.OperatingSystem, n.Status.NodeInfo.Architecture,
	}
	want := facts{
		Labels: map[string]string{
			"kubernetes.io/hostname": "one", "kubernetes.io/os": "linux", "kubernetes.io/arch": arch,
			"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": arch, "kwok.x-k8s.io/node": "fake",
		},
		Annotations: map[string]string{
			"kwok.x-k8s.io/node": "fake", "volumes.kubernetes.io/controller-managed-attach-detach": "true",
		},
		Taints: []string{
			"node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule",
			"node.kubernetes.io/not-ready:NoSchedule", // added by the API server to every new Node
		},
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "one"}},
		CPU:       "2", Memory: "4Gi", Pods: "110", Allocatable: "3996Mi",
		OS: "linux", Arch: arch,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
	server, err := b.kube.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	info := n.Status.NodeInfo
	if info.KubeletVersion != server.GitVersion || info.SystemUUID == "" || info.MachineID == "" || info.BootID == "" {
		t.Errorf("nodeInfo = %+v; want kubelet %s and identifiers", info, server.GitVersion)
	}
}

// When an instance stops, the hypervisor sets the Node to NotReady but does not delete the
// Node. When the instance starts, the Node gets a new boot id.
func TestPower(t *testing.T) {
	b := newBench(t)
	i := b.create("one", "sim-1a")
	first := b.awaitNode("one", "Ready", isReady)
	b.initialize(i)

	b.callVerb(b.cloud.StopInstance, i)
	off := b.awaitNode("one", "off", isOff)
	if off.UID != first.UID || off.Status.NodeInfo.BootID != first.Status.NodeInfo.BootID {
		t.Errorf("Node after the stop: got UID %s and boot id %s, want %s and %s", off.UID, off.Status.NodeInfo.BootID, first.UID, first.Status.NodeInfo.BootID)
	}
	b.callVerb(b.cloud.StartInstance, i)
	second := b.awaitNode("one", "Ready again, after another boot", func(n *corev1.Node) bool {
		return isReady(n) && n.Status.NodeInfo.BootID != first.Status.NodeInfo.BootID
	})
	if second.UID != first.UID || second.Status.NodeInfo.SystemUUID != first.Status.NodeInfo.SystemUUID {
		t.Error("the identifiers of the machine changed after a stop and a start")
	}
	want := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: i.InternalIP()}, {Type: corev1.NodeHostName, Address: "one"}}
	if diff := cmp.Diff(want, second.Status.Addresses); diff != "" {
		t.Errorf("the addresses of the instance changed (-want +got):\n%s", diff)
	}
	b.callVerb(b.cloud.RebootInstance, i)
	b.awaitNode("one", "Ready after a reboot", func(n *corev1.Node) bool {
		return isReady(n) && n.Status.NodeInfo.BootID != second.Status.NodeInfo.BootID
	})
	b.callVerb(b.cloud.DeleteInstance, i)
	b.awaitNode("one", "off for good", isOff)
}

// In a dark (unreachable) zone, machines keep running, but their Nodes lose kwok's label.
// Nodes in other zones do not change. After the outage, the Nodes get the label again and
// keep their boot ids.
func TestDarkZone(t *testing.T) {
	b := newBench(t)
	b.create("one", "sim-1a")
	b.create("two", "sim-1b")
	first := b.awaitNode("one", "Ready", isReady)
	b.awaitNode("two", "Ready", isReady)
	dark, err := b.cloud.CreateFault(t.Context(), cloudsim.CreateFault{Name: "dark", FaultSpec: cloudsim.FaultSpec{
		Match:  cloudsim.FaultMatch{Operation: "*", Zone: "sim-1a"},
		Effect: cloudsim.FaultEffect{Type: cloudsim.FaultZoneOutage},
	}})
	if err != nil {
		t.Fatal(err)
	}
	b.awaitNode("one", "left alone", func(n *corev1.Node) bool { return n.Labels["kwok.x-k8s.io/node"] == "" && isReady(n) })
	b.awaitNode("two", "Ready", func(n *corev1.Node) bool { return n.Labels["kwok.x-k8s.io/node"] != "" && isReady(n) })
	if err := b.cloud.DeleteFault(t.Context(), dark.ID); err != nil {
		t.Fatal(err)
	}
	b.awaitNode("one", "kept alive again, and never booted", func(n *corev1.Node) bool {
		return n.Labels["kwok.x-k8s.io/node"] != "" && isReady(n) && n.Status.NodeInfo.BootID == first.Status.NodeInfo.BootID
	})
}

// A crashed machine is unreachable although the cloud shows its instance as running. After a
// reboot the Node is Ready again.
func TestCrash(t *testing.T) {
	b := newBench(t)
	i := b.create("one", "sim-1a")
	first := b.awaitNode("one", "Ready", isReady)
	b.callVerb(b.cloud.CrashInstance, i)
	b.awaitNode("one", "left alone", func(n *corev1.Node) bool { return n.Labels["kwok.x-k8s.io/node"] == "" && isReady(n) })
	b.callVerb(b.cloud.RebootInstance, i)
	b.awaitNode("one", "Ready after a reboot", func(n *corev1.Node) bool {
		return n.Labels["kwok.x-k8s.io/node"] != "" && isReady(n) && n.Status.NodeInfo.BootID != first.Status.NodeInfo.BootID
	})
}

// With the profile engine.Realistic, a reboot takes as long as on real hardware. During the reboot,
// the machine's Node is NotReady. Later the Node is Ready again and has a new boot id.
func TestRebootTakesTheNodeDown(t *testing.T) {
	b := newBench(t, cloudtest.WithProfile(engine.Realistic))
	i := b.create("one", "sim-1a")
	first := b.awaitNode("one", "Ready", isReady)
	b.callVerb(b.cloud.RebootInstance, i)
	b.awaitNode("one", "off", isOff)
	b.awaitNode("one", "Ready after a reboot", func(n *corev1.Node) bool {
		return isReady(n) && n.Status.NodeInfo.BootID != first.Status.NodeInfo.BootID
	})
}

// A new instance may have the name of an earlier instance. The hypervisor registers the
// new instance only after the cloud controller manager has deleted the earlier instance's Node.
func TestNewInstanceWaitsForOldNode(t *testing.T) {
	b := newBench(t)
	old := b.create("one", "sim-1a")
	b.awaitNode("one", "Ready", isReady)
	b.initialize(old)
	b.callVerb(b.cloud.DeleteInstance, old)
	b.awaitNode("one", "off", isOff)

	next := b.create("one", "sim-1c")
	b.await("the kubelet waits", func() error {
		if b.log.count("waiting for the cloud controller manager", old.ProviderID) == 0 {
			return errors.New("it has not said so")
		}
		return nil
	})
	b.patch("one", "", map[string]any{"metadata": map[string]any{"labels": map[string]any{"touched": "true"}}})
	two := b.create("two", "sim-1a")
	b.awaitNode("two", "Ready", isReady) // shows that the hypervisor has also received the earlier update of node one
	b.awaitHealth(url(two, 10256, "/healthz"), http.StatusOK, "")
	if resp, err := freshClient.Get(url(next, 10256, "/healthz")); err == nil {
		resp.Body.Close()
		t.Error("a machine without its own Node has a kube-proxy")
	}
	before := b.awaitNode("one", "still off, and the old one's", func(n *corev1.Node) bool {
		return isOff(n) && n.Spec.ProviderID == old.ProviderID
	})
	if n := b.log.count("waiting for the cloud controller manager"); n != 1 {
		t.Errorf("got %d log lines about the wait, want 1", n)
	}
	b.deleteNode("one")
	b.awaitNode("one", "the new machine's", func(n *corev1.Node) bool {
		return isReady(n) && n.Spec.ProviderID == "" && n.UID != before.UID &&
			n.Status.NodeInfo.SystemUUID != before.Status.NodeInfo.SystemUUID
	})
}

// A Node without a provider id does not belong to an instance yet. If a new machine has the Node's
// name, the machine uses this Node, as a kubelet would.
func TestTakesOverUninitializedNode(t *testing.T) {
	b := newBench(t)
	old := b.create("one", "sim-1a")
	first := b.awaitNode("one", "Ready", isReady)
	b.callVerb(b.cloud.DeleteInstance, old)
	b.create("one", "sim-1b")
	n := b.awaitNode("one", "the new machine's", func(n *corev1.Node) bool {
		return isReady(n) && n.Status.NodeInfo.SystemUUID != first.Status.NodeInfo.SystemUUID
	})
	if n.UID != first.UID {
		t.Error("the kubelet created the Node again")
	}
}

// A kubelet registers once after its start, so a deleted Node returns only after a reboot.
func TestNodeDeletedByHand(t *testing.T) {
	b := newBench(t)
	i := b.create("one", "sim-1a")
	b.awaitNode("one", "Ready", isReady)
	b.deleteNode("one")
	b.await("the kubelet notices the change", func() error {
		if b.log.count("registers again when the instance boots") != 1 {
			return errors.New("it has not said so")
		}
		return nil
	})
	b.create("two", "sim-1a")
	b.awaitNode("two", "Ready", isReady)
	b.awaitAbsent("one")
	b.callVerb(b.cloud.RebootInstance, i)
	b.awaitNode("one", "Ready after a reboot", isReady)
}

// The hypervisor does not change a Node that another client has created.
func TestForeignNode(t *testing.T) {
	b := newBench(t)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	if _, err := b.kube.CoreV1().Nodes().Create(b.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.create("one", "sim-1a")
	b.await("the kubelet logs the reason", func() error {
		if b.log.count("is not hollow") != 1 {
			return errors.New("it has not said so")
		}
		return nil
	})
	b.awaitNode("one", "untouched", func(n *corev1.Node) bool { return n.Status.NodeInfo.SystemUUID == "" && len(n.Annotations) == 0 })
}

// A new hypervisor handles all changes that happened while no hypervisor ran.
func TestRestart(t *testing.T) {
	b := newBench(t)
	names := []string{"keeps", "deleted", "stopped", "rebooted", "removed"}
	was, before := map[string]cloudsim.Instance{}, map[string]*corev1.Node{}
	for _, name := range names {
		was[name] = b.create(name, "sim-1a")
		before[name] = b.awaitNode(name, "Ready", isReady)
		b.initialize(was[name])
	}
	b.stop()
	b.callVerb(b.cloud.DeleteInstance, was["deleted"])
	b.callVerb(b.cloud.StopInstance, was["stopped"])
	b.callVerb(b.cloud.RebootInstance, was["rebooted"])
	b.deleteNode("removed")
	b.create("created", "sim-1b")
	b.start(b.cloud)

	b.awaitNode("created", "Ready", isReady)
	b.awaitNode("deleted", "off", isOff)
	b.awaitNode("stopped", "off", isOff)
	b.awaitNode("removed", "Ready: its kubelet was started anew", isReady)
	b.awaitNode("rebooted", "Ready after a reboot", func(n *corev1.Node) bool {
		return isReady(n) && n.Status.NodeInfo.BootID != before["rebooted"].Status.NodeInfo.BootID
	})
	n := b.awaitNode("keeps", "Ready", isReady)
	if diff := cmp.Diff(before["keeps"].Status.NodeInfo, n.Status.NodeInfo); diff != "" {
		t.Errorf("a Node changed without a reason (-before +after):\n%s", diff)
	}
}

// If the cloud is unavailable, the hypervisor waits until the cloud answers again. If the
// cloud has dropped events in the meantime, the hypervisor reads a new list.
func TestCloudGoesAway(t *testing.T) {
	b := newBench(t, cloudtest.WithConfig(func(c *engine.Config) { c.JournalKeep = 2 }))
	b.stop()
	line := &cable{next: b.cloud.HTTP.Transport}
	far := *b.cloud
	far.HTTP = &http.Client{Transport: line}
	b.start(&far)

	gone := b.create("gone", "sim-1a")
	b.awaitNode("gone", "Ready", isReady)
	line.cut()
	b.await("the kubelet notices the change", func() error {
		if b.log.count("cannot read the changes in the cloud") == 0 {
			return errors.New("it has not said so")
		}
		return nil
	})
	b.callVerb(b.cloud.DeleteInstance, gone)
	for _, name := range []string{"two", "three", "four", "five"} {
		b.create(name, "sim-1a")
	}
	line.mend()
	b.awaitNode("five", "Ready", isReady)
	b.awaitNode("two", "Ready", isReady)
	b.awaitNode("gone", "off", isOff)
	if b.log.count("cannot read the changes in the cloud") != 1 || b.log.count("reading changes from the cloud works again") != 1 || b.log.count("listing all resources again") == 0 {
		t.Errorf("want one line about the failed read, one line about its end, and a line about the new list in the log:\n%s", b.log)
	}
}

// cable is a connection to the cloud that a test can cut.
type cable struct {
	next http.RoundTripper
	mu   sync.Mutex
	off  bool
	open []io.Closer
}

func (c *cable) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off {
		return nil, errors.New("the cable is cut")
	}
	resp, err := c.next.RoundTrip(r)
	if err == nil {
		c.open = append(c.open, resp.Body)
	}
	return resp, err
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = true
	for _, body := range c.open {
		body.Close()
	}
}

func (c *cable) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = false
}

func TestConfigValidate(t *testing.T) {
	err := hollow.Config{}.Validate()
	for _, want := range []string{"cloud is required", "kubeconfig is required"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate = %v, want an error with %q", err, want)
		}
	}
	if err := (hollow.Config{Cloud: &client.Client{}, Kubeconfig: "x"}).Validate(); err == nil {
		t.Error("Validate accepted a client without a URL")
	}
}
