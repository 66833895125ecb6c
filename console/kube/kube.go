// Package kube watches a cluster for the console. It reads Nodes, Pods, Services, VolumeAttachments
// and PersistentVolumes, and does not change the cluster.
package kube

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cloudsim-dev/allinone/console"
	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// probeEvery is the interval at which Run checks whether the API server answers.
const probeEvery = 2 * time.Second

// Watcher watches a cluster.
type Watcher struct {
	log    *slog.Logger
	client kubernetes.Interface
}

// New returns a Watcher for the current context of a kubeconfig. If kubeconfig is empty, the
// Watcher uses the service account of its pod. The argument agent is the User-Agent of the calls.
// New does not call the cluster.
func New(log *slog.Logger, kubeconfig, agent string) (*Watcher, error) {
	conf, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	conf.UserAgent = agent
	conf.ContentType, conf.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(conf)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return &Watcher{log, client}, nil
}

// view converts the objects of the cluster and passes them to the console.
type view struct {
	sink console.Sink

	mu          sync.Mutex
	nodes       map[string]console.Node
	pods        map[string]string // node by NAMESPACE/NAME
	count       map[string]int    // pods by node
	volumes     map[string]string // volume handle by PersistentVolume
	attachments map[string]storagev1.VolumeAttachment
}

// Run passes the objects of the cluster to sink until ctx ends. It calls sink.State every two
// seconds.
func (w *Watcher) Run(ctx context.Context, sink console.Sink) {
	v := &view{
		sink: sink, nodes: map[string]console.Node{}, pods: map[string]string{}, count: map[string]int{},
		volumes: map[string]string{}, attachments: map[string]storagev1.VolumeAttachment{},
	}
	factory := informers.NewSharedInformerFactoryWithOptions(w.client, 0, informers.WithTransform(trim))
	core, storage := factory.Core().V1(), factory.Storage().V1()
	passed := []cache.InformerSynced{
		passChanges(core.Nodes().Informer(), v.putNode, v.deleteNode),
		passChanges(core.Pods().Informer(), v.putPod, v.deletePod),
		passChanges(core.Services().Informer(), v.putService, v.deleteService),
		passChanges(core.PersistentVolumes().Informer(), v.putVolume, v.deleteVolume),
		passChanges(storage.VolumeAttachments().Informer(), v.putAttachment, v.deleteAttachment),
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	synced := make(chan struct{})
	go func() {
		defer close(synced)
		cache.WaitForCacheSync(ctx.Done(), passed...)
	}()
	for ctx.Err() == nil {
		problem := ""
		probe, cancel := context.WithTimeout(ctx, probeEvery)
		if _, err := w.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(probe); err != nil {
			problem = "the cluster does not answer: " + err.Error()
		}
		cancel()
		select {
		case <-synced:
		default:
			if problem == "" {
				problem = "the console has not yet read the cluster"
			}
		}
		sink.State(problem)
		backoff.Sleep(ctx, probeEvery)
	}
	<-synced
}

// trim removes the parts of an object that the console does not use.
func trim(obj any) (any, error) {
	if m, ok := obj.(metav1.Object); ok {
		m.SetManagedFields(nil)
		m.SetAnnotations(nil)
	}
	if p, ok := obj.(*v1.Pod); ok {
		p.Labels = nil
		p.Spec = v1.PodSpec{NodeName: p.Spec.NodeName}
		p.Status = v1.PodStatus{Phase: p.Status.Phase}
	}
	return obj, nil
}

// passChanges passes the changes of an informer to putFn and removeFn. The returned function
// reports whether putFn has received all objects of the first list. Until this function returns
// true, the caller must report a problem to the console. Otherwise the console would show the
// missing objects as differences between the cloud and the cluster.
func passChanges[T any](i cache.SharedIndexInformer, putFn, removeFn func(T)) cache.InformerSynced {
	call := func(fn func(T), obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if o, ok := obj.(T); ok {
			fn(o)
		}
	}
	passed, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { call(putFn, obj) },
		UpdateFunc: func(_, obj any) { call(putFn, obj) },
		DeleteFunc: func(obj any) { call(removeFn, obj) },
	})
	if err != nil {
		return i.HasSynced // fails only for a stopped informer
	}
	return passed.HasSynced
}

func (v *view) putNode(n *v1.Node) {
	o := console.Node{
		Name: n.Name, ProviderID: n.Spec.ProviderID, Zone: n.Labels[v1.LabelTopologyZone], Ready: string(v1.ConditionUnknown), Cordoned: n.Spec.Unschedulable,
	}
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady {
			o.Ready, o.Reason = string(c.Status), c.Reason
		}
	}
	for _, a := range n.Status.Addresses {
		o.Addresses = append(o.Addresses, console.NodeAddress{Type: string(a.Type), Address: a.Address})
	}
	for _, t := range n.Spec.Taints {
		o.Taints = append(o.Taints, t.Key+":"+string(t.Effect))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	o.Pods = v.count[n.Name]
	v.nodes[n.Name] = o
	v.sink.Put(console.KindNode, n.Name, o)
}

func (v *view) deleteNode(n *v1.Node) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.nodes, n.Name)
	v.sink.Delete(console.KindNode, n.Name)
}

func (v *view) putPod(p *v1.Pod) {
	node := p.Spec.NodeName
	if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
		node = ""
	}
	v.setPod(p.Namespace+"/"+p.Name, node)
}

func (v *view) deletePod(p *v1.Pod) { v.setPod(p.Namespace+"/"+p.Name, "") }

// setPod stores the node of a pod and updates the pod counts of Nodes. An empty node means that the
// pod runs on no node.
func (v *view) setPod(pod, node string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	old := v.pods[pod]
	if old == node {
		return
	}
	if v.pods[pod] = node; node == "" {
		delete(v.pods, pod)
	}
	v.addPods(old, -1)
	v.addPods(node, 1)
}

func (v *view) addPods(node string, n int) {
	if node == "" {
		return
	}
	v.count[node] += n
	if o, ok := v.nodes[node]; ok {
		o.Pods = v.count[node]
		v.nodes[node] = o
		v.sink.Put(console.KindNode, node, o)
	}
}

func (v *view) putService(s *v1.Service) {
	if s.Spec.Type != v1.ServiceTypeLoadBalancer {
		v.deleteService(s)
		return
	}
	o := console.Service{Namespace: s.Namespace, Name: s.Name, UID: string(s.UID)}
	for _, in := range s.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			o.Ingress = append(o.Ingress, in.IP)
		} else {
			o.Ingress = append(o.Ingress, in.Hostname)
		}
	}
	v.sink.Put(console.KindService, s.Namespace+"/"+s.Name, o)
}

func (v *view) deleteService(s *v1.Service) {
	v.sink.Delete(console.KindService, s.Namespace+"/"+s.Name)
}

func (v *view) putVolume(p *v1.PersistentVolume) {
	if p.Spec.CSI == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.volumes[p.Name] = p.Spec.CSI.VolumeHandle
	for _, a := range v.attachments {
		if *a.Spec.Source.PersistentVolumeName == p.Name {
			v.sendAttachment(&a)
		}
	}
}

func (v *view) deleteVolume(p *v1.PersistentVolume) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.volumes, p.Name)
}

func (v *view) putAttachment(a *storagev1.VolumeAttachment) {
	if a.Spec.Source.PersistentVolumeName == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.attachments[a.Name] = *a
	v.sendAttachment(a)
}

func (v *view) sendAttachment(a *storagev1.VolumeAttachment) {
	v.sink.Put(console.KindVolumeAttachment, a.Name, console.VolumeAttachment{
		Name: a.Name, Node: a.Spec.NodeName, Disk: v.volumes[*a.Spec.Source.PersistentVolumeName], Attached: a.Status.Attached,
	})
}

func (v *view) deleteAttachment(a *storagev1.VolumeAttachment) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.attachments, a.Name)
	v.sink.Delete(console.KindVolumeAttachment, a.Name)
}
