// Package kube is what a network proxy asks a Kubernetes API: whether an
// agent's token is good, and how many servers there are. It carries no
// connection.
package kube

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cloudsim-dev/allinone/netproxy/server"
	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// Access is how the API is reached.
type Access struct {
	Kubeconfig  string // "": the service account of the pod
	QPS         float32
	Burst       int
	ContentType string
}

// requestTimeout bounds each request.
const requestTimeout = 10 * time.Second

// Connect makes a client. It does not call the API.
func Connect(a Access) (kubernetes.Interface, error) {
	conf, err := clientcmd.BuildConfigFromFlags("", a.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	conf.QPS, conf.Burst, conf.ContentType = a.QPS, a.Burst, a.ContentType
	conf.UserAgent, conf.Timeout = "allinone-proxy", requestTimeout
	return kubernetes.NewForConfig(conf)
}

// nodeNameClaim is the TokenReview's field that names the node of a token that
// is bound to a pod. Kubernetes fills it since v1.32.
const nodeNameClaim = "authentication.kubernetes.io/node-name"

// Reviewer checks the tokens of the agents' service account by TokenReview. A
// token that is bound to a pod grants the identifiers of the pod's node: its
// name, its addresses and its pod ranges. It needs the right to list nodes.
type Reviewer struct {
	API            kubernetes.Interface
	Namespace      string
	ServiceAccount string
	Audience       string // "" for the API's own
}

// Authenticate implements server.Authenticator.
func (r Reviewer) Authenticate(ctx context.Context, token string) (wire.Identifiers, error) {
	status, err := r.review(ctx, token)
	if err != nil {
		return wire.Identifiers{}, err
	}
	if node := status.User.Extra[nodeNameClaim]; len(node) == 1 {
		return r.identifiersOf(ctx, node[0])
	}
	return wire.Identifiers{}, nil
}

// identifiersOf returns the name, addresses and pod ranges of a node. A node
// reports its addresses itself, so an address that two nodes report is left out.
func (r Reviewer) identifiersOf(ctx context.Context, name string) (id wire.Identifiers, err error) {
	nodes, err := r.API.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return id, fmt.Errorf("list of nodes: %w", err)
	}
	id.Host = []string{name}
	var own *corev1.Node
	others := map[string]bool{}
	for i, n := range nodes.Items {
		if n.Name == name {
			own = &nodes.Items[i]
			continue
		}
		for _, a := range n.Status.Addresses {
			others[a.Address] = true
		}
	}
	if own == nil {
		return id, nil
	}
	for _, a := range own.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		switch {
		case err != nil || others[a.Address]: // a name, which the node reports itself
		case ip.Is4():
			id.IPv4 = append(id.IPv4, ip)
		default:
			id.IPv6 = append(id.IPv6, ip)
		}
	}
	for _, text := range own.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			id.CIDR = append(id.CIDR, p.Masked())
		}
	}
	return id, nil
}

func (r Reviewer) review(ctx context.Context, token string) (authenticationv1.TokenReviewStatus, error) {
	ask := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if r.Audience != "" {
		ask.Spec.Audiences = []string{r.Audience}
	}
	answer, err := r.API.AuthenticationV1().TokenReviews().Create(ctx, ask, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.TokenReviewStatus{}, fmt.Errorf("token review: %w", err)
	}
	want := "system:serviceaccount:" + r.Namespace + ":" + r.ServiceAccount
	s := answer.Status
	switch {
	case !s.Authenticated:
		err = fmt.Errorf("%w: the API server does not know it, or it has expired", server.ErrDenied)
	case r.Audience != "" && !slices.Contains(s.Audiences, r.Audience):
		err = fmt.Errorf("%w: it is not for the audience %s", server.ErrDenied, r.Audience)
	case s.User.Username != want:
		err = fmt.Errorf("%w: it belongs to %s, not %s", server.ErrDenied, s.User.Username, want)
	}
	return s, err
}

// How long a server's Lease is good, and how often it is renewed: upstream's.
const (
	leaseSeconds = 30
	renewEvery   = 15 * time.Second
)

// Leases are how servers are counted: one each, in a namespace, with labels.
type Leases struct {
	API       kubernetes.Interface
	Namespace string
	Selector  string // such as k8s-app=konnectivity-server
}

// Servers is agent.Counter's: how many Leases are good now.
func (l Leases) Servers(ctx context.Context) (int, error) {
	list, err := l.API.CoordinationV1().Leases(l.Namespace).List(ctx, metav1.ListOptions{LabelSelector: l.Selector})
	if err != nil {
		return 0, fmt.Errorf("list of leases: %w", err)
	}
	n := 0
	for _, lease := range list.Items {
		if !expired(lease, time.Now()) {
			n++
		}
	}
	return n, nil
}

func expired(l coordinationv1.Lease, now time.Time) bool {
	s := l.Spec
	return s.RenewTime == nil || s.LeaseDurationSeconds == nil ||
		s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds)*time.Second).Before(now)
}

// Publish keeps the Lease of a server until ctx ends, and then deletes it; of
// others it deletes those that have expired. What fails is told, and tried
// again at the next renewal.
func (l Leases) Publish(ctx context.Context, id string, labels map[string]string, told func(error)) error {
	name := "konnectivity-proxy-server-" + id
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		if err := errors.Join(l.renew(ctx, name, id, labels), l.cull(ctx)); err != nil && ctx.Err() == nil {
			told(err)
		}
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
			defer cancel()
			err := l.API.CoordinationV1().Leases(l.Namespace).Delete(last, name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("lease %s stays until it expires: %w", name, err)
			}
			return nil
		case <-tick.C:
		}
	}
}

func (l Leases) renew(ctx context.Context, name, id string, labels map[string]string) error {
	now, seconds := metav1.NowMicro(), int32(leaseSeconds)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: l.Namespace, Labels: labels},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &id, LeaseDurationSeconds: &seconds, RenewTime: &now, AcquireTime: &now},
	}
	api := l.API.CoordinationV1().Leases(l.Namespace)
	_, err := api.Create(ctx, lease, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q,"holderIdentity":%q,"leaseDurationSeconds":%d}}`, now.UTC().Format(metav1.RFC3339Micro), id, seconds)
		_, err = api.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("lease %s: %w", name, err)
	}
	return nil
}

// cull deletes what servers that died have left.
func (l Leases) cull(ctx context.Context) error {
	api := l.API.CoordinationV1().Leases(l.Namespace)
	list, err := api.List(ctx, metav1.ListOptions{LabelSelector: l.Selector})
	if err != nil {
		return fmt.Errorf("list of leases: %w", err)
	}
	var errs []error
	for _, lease := range list.Items {
		if !expired(lease, time.Now()) {
			continue
		}
		same := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion}}
		if err := api.Delete(ctx, lease.Name, same); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("expired lease %s: %w", lease.Name, err))
		}
	}
	return errors.Join(errs...)
}
