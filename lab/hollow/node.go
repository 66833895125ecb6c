package hollow

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/internal/providerid"
)

const (
	// fakeKey is the key of an annotation and of a label. Each hollow Node always has the
	// annotation. The Node has the label only while its machine is on. Kwok manages only Nodes
	// with the label.
	fakeKey   = "kwok.x-k8s.io/node"
	fakeValue = "fake"

	taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized" // KEP-2392
	attachDetach       = "volumes.kubernetes.io/controller-managed-attach-detach"

	maxPods     = 110 // the kubelet's default
	kubeletPort = 10250
	diskGiB     = 20 // the cloud defines no disk size for machines
	// evictionMiB is the memory in MiB that a kubelet keeps free by default.
	evictionMiB = 100
)

// isHollow reports whether this package made the Node.
func isHollow(n *corev1.Node) bool { return n.Annotations[fakeKey] == fakeValue }

// hasKwokLabel reports whether a Node has kwok's label. If a Node has this label, kwok renews the
// Node's lease.
func hasKwokLabel(n *corev1.Node) bool { return n.Labels[fakeKey] == fakeValue }

// mayBelong reports whether machine m can use the Node n of the same name. If n has a provider id,
// it must be the provider id of m. If n has no provider id, m can use n, because a kubelet takes
// over an existing Node with its machine's name.
func mayBelong(n *corev1.Node, m machine) bool {
	return n.Spec.ProviderID == "" || providerid.Same(n.Spec.ProviderID, m.ProviderID)
}

func kubeletLabels(name string) map[string]string {
	return map[string]string{
		corev1.LabelHostname:    name,
		corev1.LabelOSStable:    "linux",
		corev1.LabelArchStable:  runtime.GOARCH,
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": runtime.GOARCH,
	}
}

// newNode returns the Node that a kubelet registers. The Node is not Ready until kwok sets the
// condition Ready.
func newNode(m machine, typ cloudsim.InstanceType, version string, now metav1.Time) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        m.Name,
			Labels:      kubeletLabels(m.Name),
			Annotations: map[string]string{fakeKey: fakeValue, attachDetach: "true"},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: taintUninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule},
		}},
	}
	n.Labels[fakeKey] = fakeValue
	setBootStatus(n, m, typ, version)
	notReady(n, "kubelet is starting", now)
	return n
}

// setBootStatus updates a Node's status with the facts that a kubelet determines at its
// start, such as the capacity and the boot id.
func setBootStatus(n *corev1.Node, m machine, typ cloudsim.InstanceType, version string) {
	n.Status.NodeInfo = corev1.NodeSystemInfo{
		SystemUUID:              systemUUID(m.Instance),
		MachineID:               strings.ReplaceAll(derive("machine", m.Instance, ""), "-", ""),
		BootID:                  bootID(m.Instance),
		Architecture:            runtime.GOARCH,
		OperatingSystem:         "linux",
		OSImage:                 "cloudsim hollow machine",
		KernelVersion:           "none",
		ContainerRuntimeVersion: "kwok://hollow",
		KubeletVersion:          version,
	}
	n.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(typ.CPUs), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(typ.MemoryMiB<<20, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(diskGiB<<30, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(maxPods, resource.DecimalSI),
	}
	n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	n.Status.Allocatable[corev1.ResourceMemory] = *resource.NewQuantity(max(typ.MemoryMiB-evictionMiB, 1)<<20, resource.BinarySI)
	n.Status.Allocatable[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(diskGiB<<30/10*9, resource.BinarySI)
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = kubeletPort
	if len(n.Status.Addresses) == 0 { // keep the addresses of the cloud controller manager
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: m.Name}}
	}
}

// systemUUID returns the UUID of a machine's firmware. The UUID of an instance
// never changes. Two instances never have equal UUIDs, even in different
// clouds.
func systemUUID(i cloudsim.Instance) string { return derive("system", i, "") }

// bootID returns the kernel's ID of the current boot. Each start and each reboot is an operation of
// the cloud with its own operation id. The boot ID is a hash that includes this operation id, so a
// restarted hypervisor computes the same boot ID. If the Node has a different ID, the machine has
// booted while the hypervisor did not run.
func bootID(i cloudsim.Instance) string { return derive("boot", i, string(i.Operation)) }

// derive returns a UUID (RFC 9562, version 8). The UUID is a hash of the two string arguments and
// of the instance's provider id and creation time. Without the creation time, instances of two
// clouds could have equal UUIDs, because their provider ids can be equal.
func derive(purpose string, i cloudsim.Instance, more string) string {
	data := fmt.Appendf(nil, "%s %s %d %s", purpose, i.ProviderID, i.CreatedAt.UnixNano(), more)
	return uuid.NewHash(sha256.New(), uuid.Nil, data, 8).String()
}

func notReady(n *corev1.Node, message string, now metav1.Time) {
	not := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: message,
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	for i, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			n.Status.Conditions[i] = not
			return
		}
	}
	n.Status.Conditions = append(n.Status.Conditions, not)
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// statusPatch returns a strategic merge patch that changes a Node's status from the current to the
// desired status. The patch contains the uid of the current Node. So the API server refuses the
// patch if a new Node with the same name has replaced the current Node.
func statusPatch(current, desired *corev1.Node) ([]byte, error) {
	was, err := json.Marshal(corev1.Node{Status: current.Status})
	if err != nil {
		return nil, err
	}
	is, err := json.Marshal(corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: current.UID}, Status: desired.Status})
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(was, is, corev1.Node{})
}

// labelsPatch returns a merge patch that sets labels. A nil value removes a label.
func labelsPatch(n *corev1.Node, labels map[string]any) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": n.UID, "labels": labels}})
}
