package hollow

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// kubeletSet acts as the kubelet of every machine of a fleet.
type kubeletSet struct {
	log    *slog.Logger
	cloud  *client.Client
	kube   kubernetes.Interface
	fleet  *fleet
	nodes  corelisters.NodeLister
	synced func() bool
	queue  *nodeQueue
	// version is the version of all kubelets. It equals the API server's version, because a
	// kubelet must not be newer than the API server.
	version string
}

func newKubelets(log *slog.Logger, cloud *client.Client, kube kubernetes.Interface, factory informers.SharedInformerFactory, f *fleet) (*kubeletSet, error) {
	informer := factory.Core().V1().Nodes()
	k := &kubeletSet{
		log: log, cloud: cloud, kube: kube, fleet: f, nodes: informer.Lister(),
	}
	k.queue = newNodeQueue(log, "hollow node not updated", k.sync)
	f.hear = append(f.hear, k.queue.add)
	named := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			k.queue.add(key)
		}
	}
	handler, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: named, UpdateFunc: func(_, obj any) { named(obj) }, DeleteFunc: named,
	})
	if err != nil {
		return nil, fmt.Errorf("node informer: %w", err)
	}
	k.synced = handler.HasSynced
	return k, nil
}

// run updates Nodes until ctx ends. It first waits for the lists of all instances and Nodes.
// Otherwise it would treat an instance that is not listed yet as a machine that is off.
func (k *kubeletSet) run(ctx context.Context) { k.queue.run(ctx, k.begin) }

// begin waits until the cloud and the API server answer. It returns false if
// ctx ends first.
func (k *kubeletSet) begin(ctx context.Context) bool {
	select {
	case <-k.fleet.listed:
	case <-ctx.Done():
		return false
	}
	if !cache.WaitForCacheSync(ctx.Done(), k.synced) {
		return false
	}
	retry := retryBackoff()
	for {
		var err error
		if k.version, err = k.serverVersion(ctx); err == nil {
			return true
		}
		if retry.Wait(ctx); ctx.Err() != nil {
			return false
		}
	}
}

func (k *kubeletSet) serverVersion(ctx context.Context) (string, error) {
	raw, err := k.kube.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return "", err
	}
	var v version.Info
	err = json.Unmarshal(raw, &v)
	return v.GitVersion, err
}

// sync updates the Node with the given name to the state of its machine.
func (k *kubeletSet) sync(ctx context.Context, name string) error {
	m := k.fleet.get(name)
	n, err := k.nodes.Get(name)
	switch {
	case apierrors.IsNotFound(err) && !m.isOn():
		return nil
	case apierrors.IsNotFound(err) && m.hasRegistered:
		if k.fleet.sayOnce(m, "deleted") {
			k.log.Info("the Node was deleted while its instance runs; the hollow node registers again when the instance boots, as a real kubelet does", "node", name, "instance", m.ID)
		}
		return nil
	case apierrors.IsNotFound(err) && k.fleet.isUnreachable(m):
		return nil // the machine registers when it is reachable again
	case apierrors.IsNotFound(err):
		return k.register(ctx, m)
	case err != nil:
		return err
	case !isHollow(n):
		if m.isOn() && k.fleet.sayOnce(m, "foreign") {
			k.log.Warn("a Node of this name exists and is not hollow; it stays unchanged", "node", name, "instance", m.ID)
		}
		return nil
	case k.fleet.isUnreachable(m) && mayBelong(n, m):
		return k.cutOff(ctx, n)
	case m.isOn() && mayBelong(n, m):
		return k.powerOn(ctx, m, n)
	}
	if m.isOn() && k.fleet.sayOnce(m, "waiting "+n.Spec.ProviderID) {
		k.log.Info("waiting for the cloud controller manager to delete the Node of an earlier instance", "node", name, "providerID", n.Spec.ProviderID, "instance", m.ID)
	}
	return k.powerOff(ctx, n)
}

// register creates the Node of a machine that has booted.
func (k *kubeletSet) register(ctx context.Context, m machine) error {
	typ, err := k.cloud.GetInstanceType(ctx, m.Type)
	if err != nil {
		return fmt.Errorf("instance type %s: %w", m.Type, err)
	}
	n := newNode(m, typ, k.version, metav1.Now())
	_, err = k.kube.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // the event of the existing Node queues this name again
	}
	if err != nil {
		return err
	}
	k.fleet.changeMachine(m, func(m *machine) { m.hasRegistered, m.lastLogged = true, "" })
	k.log.Info("a hollow node registered", "node", m.Name, "instance", m.ID)
	return nil
}

// powerOn adds kwok's label to the Node, so that kwok sets Ready. If the machine has booted again,
// powerOn first writes the new boot id into the Node's status.
func (k *kubeletSet) powerOn(ctx context.Context, m machine, n *corev1.Node) error {
	if n.Status.NodeInfo.BootID != bootID(m.Instance) {
		typ, err := k.cloud.GetInstanceType(ctx, m.Type)
		if err != nil {
			return fmt.Errorf("instance type %s: %w", m.Type, err)
		}
		after := n.DeepCopy()
		setBootStatus(after, m, typ, k.version)
		if err := k.patchStatus(ctx, n, after); err != nil {
			return err
		}
		k.log.Info("a hollow node booted", "node", n.Name, "instance", m.ID)
	}
	if err := k.addLabels(ctx, n); err != nil {
		return err
	}
	k.fleet.changeMachine(m, func(m *machine) { m.hasRegistered, m.lastLogged = true, "" })
	return nil
}

func (k *kubeletSet) addLabels(ctx context.Context, n *corev1.Node) error {
	want := kubeletLabels(n.Name)
	want[fakeKey] = fakeValue
	missing := map[string]any{}
	for key, value := range want {
		if n.Labels[key] != value {
			missing[key] = value
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return k.patchLabels(ctx, n, missing)
}

// powerOff removes kwok's label. If the Node is Ready, powerOff then sets the Node to NotReady.
// If kwok has not yet seen that the label is gone, it may set the Node to Ready again. The
// informer's event about kwok's update then causes another call of powerOff.
func (k *kubeletSet) powerOff(ctx context.Context, n *corev1.Node) error {
	if hasKwokLabel(n) {
		if err := k.patchLabels(ctx, n, map[string]any{fakeKey: nil}); err != nil {
			return err
		}
	}
	if !isReady(n) {
		return nil
	}
	after := n.DeepCopy()
	notReady(after, "node is shutting down", metav1.Now())
	if err := k.patchStatus(ctx, n, after); err != nil {
		return err
	}
	k.log.Info("a hollow node shut down", "node", n.Name)
	return nil
}

// cutOff simulates the kubelet of an unreachable machine, which cannot update its Node. It only
// removes kwok's label, so that kwok no longer renews the lease of the Node. The lease expires.
// Then the node lifecycle controller sets the Node's condition Ready to Unknown.
func (k *kubeletSet) cutOff(ctx context.Context, n *corev1.Node) error {
	if !hasKwokLabel(n) {
		return nil
	}
	if err := k.patchLabels(ctx, n, map[string]any{fakeKey: nil}); err != nil {
		return err
	}
	k.log.Info("a hollow node cannot be reached, because its instance crashed or its zone has an outage", "node", n.Name)
	return nil
}

func (k *kubeletSet) patchLabels(ctx context.Context, n *corev1.Node, labels map[string]any) error {
	patch, err := labelsPatch(n, labels)
	if err != nil {
		return err
	}
	_, err = k.kube.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return ifThere(err)
}

func (k *kubeletSet) patchStatus(ctx context.Context, before, after *corev1.Node) error {
	patch, err := statusPatch(before, after)
	if err != nil {
		return err
	}
	_, err = k.kube.CoreV1().Nodes().PatchStatus(ctx, before.Name, patch)
	return ifThere(err)
}

// ifThere returns nil if err means that the object no longer exists, or that a
// new object now has the same name. In both cases the informer sends an event, and the
// event queues the node again.
func ifThere(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
