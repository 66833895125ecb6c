package fake

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/cloud-provider/controllers/node"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	"k8s.io/cloud-provider/controllers/route"
	"k8s.io/cloud-provider/controllers/service"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	_ "k8s.io/controller-manager/pkg/features/register" // registers the feature gates of upstream's controllers

	"github.com/cloudsim-dev/allinone/conform"
)

// monitorPeriod is the time between two checks of the routes, and between two checks of the Nodes
// that are not Ready.
const monitorPeriod = 300 * time.Millisecond

// These are the times of the leader election. They are short, so that a second Manager starts to
// work soon after a test kills the first Manager.
const (
	leaseDuration = 4 * time.Second
	renewDeadline = 3 * time.Second
	retryPeriod   = 500 * time.Millisecond
)

// Manager is a CCM that runs in this process. It consists of upstream's controllers and a cloud
// provider that uses the cloud in the field Cloud. Manager implements conform.Subject.
type Manager struct {
	Kube  *rest.Config
	Cloud *Cloud
	Bug   Bug // "" for a CCM that passes all checks

	// If election is true, the Manager uses leader election and leader migration, each with its own
	// Lease. The controllers for Services, for routes and for the deletion of Nodes run only while
	// the Manager holds both Leases.
	election bool
	cancel   context.CancelFunc
	ended    sync.WaitGroup
	lost     atomic.Bool
}

var (
	_ conform.Subject    = (*Manager)(nil)
	_ conform.Replicable = (*Manager)(nil)
)

// Replica implements conform.Replicable.
func (m *Manager) Replica() conform.Subject {
	return &Manager{Kube: m.Kube, Cloud: m.Cloud, Bug: m.Bug, election: m.Bug != NoElection}
}

// Start implements conform.Subject.
func (m *Manager) Start(ctx context.Context) error {
	config := rest.CopyConfig(m.Kube)
	config.QPS, config.Burst = -1, 0
	admin, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := m.permit(ctx, admin); err != nil {
		return err
	}
	config = rest.CopyConfig(config)
	config.Impersonate.UserName = User
	if m.Bug == NoBetaLabels {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return withoutBetaLabel{next} })
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	f := informers.NewSharedInformerFactory(kube, 0)
	nodes, services := f.Core().V1().Nodes(), f.Core().V1().Services()
	p := &provider{cloud: m.Cloud, bug: m.Bug, nodes: nodes.Lister(), shared: map[types.UID][]conform.Port{}}
	_, pods, err := net.ParseCIDR(ClusterCIDR)
	if err != nil {
		return err
	}
	initial, err := node.NewCloudNodeController(nodes, kube, p, monitorPeriod, 4, 1)
	if err != nil {
		return err
	}
	lifecycle, err := nodelifecycle.NewCloudNodeLifecycleController(nodes, kube, p, monitorPeriod)
	if err != nil {
		return err
	}
	balancers, err := service.New(p, kube, services, nodes, "conform", utilfeature.DefaultFeatureGate)
	if err != nil {
		return err
	}
	routing, err := route.New(routesProvider{p}, kube, nodes, "conform", []*net.IPNet{pods})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.cancel = cancel
	m.lost.Store(false)
	metrics := controllersmetrics.NewControllerManagerMetrics("fake")
	f.Start(ctx.Done())
	m.elect(ctx, kube, "cloud-controller-manager", m.election, func(ctx context.Context) {
		m.ended.Go(func() { initial.Run(ctx.Done(), metrics) })
		m.elect(ctx, kube, "cloud-provider-extraction-migration", m.election && m.Bug != NoMigration, func(ctx context.Context) {
			m.ended.Go(func() { lifecycle.Run(ctx, metrics) })
			m.ended.Go(func() { balancers.Run(ctx, 4, metrics) })
			m.ended.Go(func() { routing.Run(ctx, monitorPeriod, metrics) })
		})
	})
	if m.Bug == EveryClass || m.Bug == OtherFinalizers {
		m.ended.Go(func() { m.meddle(ctx, admin) })
	}
	return nil
}

// permit creates the role of the CCM, and gives this role to the user of the CCM.
func (m *Manager) permit(ctx context.Context, admin kubernetes.Interface) error {
	rule := func(group, verbs string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: strings.Fields(verbs)}
	}
	nodes := "get list watch update patch delete"
	if m.Bug == NoNodeDeletion {
		nodes = "get list watch update patch"
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: User}, Rules: []rbacv1.PolicyRule{
		rule("", nodes, "nodes"),
		rule("", "get list watch", "services"),
		rule("", "update patch", "nodes/status", "services/status"),
		rule("", "create update patch", "events"),
		rule("coordination.k8s.io", "create get update", "leases"),
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: User},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: User},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: User}},
	}
	_, err := admin.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = admin.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	if _, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// elect calls startControllers at once if needsLease is false. Otherwise elect calls
// startControllers when this Manager holds the Lease. If the Manager loses the Lease, the
// controllers stop, and the method Ended returns an error. A real CCM also ends when it loses the
// Lease.
func (m *Manager) elect(ctx context.Context, kube kubernetes.Interface, lease string, needsLease bool, startControllers func(context.Context)) {
	if !needsLease {
		startControllers(ctx)
		return
	}
	m.ended.Go(func() {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Name: lease, Namespace: metav1.NamespaceSystem}, Client: kube.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: rand.Text()},
			},
			LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: startControllers, OnStoppedLeading: func() {
				if ctx.Err() == nil {
					m.lost.Store(true)
				}
			}},
		})
	})
}

// withoutBetaLabel is a transport that renames the beta label of the zone in the requests of the
// CCM. The Manager uses this transport if the simulated CCM has the bug NoBetaLabels.
type withoutBetaLabel struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (w withoutBetaLabel) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		return w.RoundTripper.RoundTrip(r)
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, errors.Join(err, r.Body.Close())
	}
	raw = bytes.ReplaceAll(raw, []byte(v1.LabelFailureDomainBetaZone), []byte("example.com/zone"))
	changed := r.Clone(r.Context())
	changed.Body, changed.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	return w.RoundTripper.RoundTrip(changed)
}

// meddle patches Services until ctx ends. Start runs meddle only if the simulated CCM has the bug
// EveryClass or OtherFinalizers. These bugs change Services, but the type provider has no client of
// kube-apiserver.
func (m *Manager) meddle(ctx context.Context, kube kubernetes.Interface) {
	for ctx.Err() == nil {
		m.meddleServices(ctx, kube)
		select {
		case <-ctx.Done():
		case <-time.After(monitorPeriod):
		}
	}
}

func (m *Manager) meddleServices(ctx context.Context, kube kubernetes.Interface) {
	all, err := kube.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, s := range all.Items {
		patch := `{"metadata":{"finalizers":["service.kubernetes.io/load-balancer-cleanup"]}}`
		switch {
		case s.Spec.Type != v1.ServiceTypeLoadBalancer, s.DeletionTimestamp != nil:
			continue
		case m.Bug == EveryClass && s.Spec.LoadBalancerClass != nil:
			patch = `{"metadata":{"finalizers":["example.com/claimed"]}}`
		case m.Bug != OtherFinalizers || len(s.Status.LoadBalancer.Ingress) == 0:
			continue
		}
		_, _ = kube.CoreV1().Services(s.Namespace).Patch(ctx, s.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	}
}

// Kill implements conform.Subject.
func (m *Manager) Kill() error {
	if m.cancel != nil {
		m.cancel()
		m.ended.Wait()
		m.cancel = nil
	}
	return nil
}

// Ended implements conform.Subject.
func (m *Manager) Ended() error {
	if m.lost.Load() {
		return errors.New("the CCM has ended, because it lost its Lease")
	}
	return nil
}
