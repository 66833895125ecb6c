// Package kube contains the requests of a network proxy to a Kubernetes API. The requests check the
// tokens of agents, and count the servers of the network proxy.
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

// Access configures the client with which this process calls the API of Kubernetes.
type Access struct {
	Kubeconfig  string // empty: the service account of the pod
	QPS         float32
	Burst       int
	ContentType string
}

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

// nodeNameClaim is a key in the result of a TokenReview. For the token of a pod, its value is the
// name of the pod's node. Kubernetes v1.30 and later set this key (KEP-4193).
const nodeNameClaim = "authentication.kubernetes.io/node-name"

// Reviewer checks with TokenReviews whether a token belongs to the agents'
// service account. If the token is bound to a pod, the token grants the
// identifiers of the pod's node: the node's name, addresses and pod ranges.
// Reviewer needs the permission to list nodes.
type Reviewer struct {
	API            kubernetes.Interface
	Namespace      string
	ServiceAccount string
	Audience       string // empty: the API's own audience
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

// identifiersOf returns the name, addresses and pod ranges of a node. Because
// each node reports its own addresses, a node could falsely report the address
// of another node. identifiersOf therefore omits an address that two nodes
// report.
func (r Reviewer) identifiersOf(ctx context.Context, name string) (id wire.Identifiers, err error) {
	nodes, err := r.API.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return id, fmt.Errorf("list of nodes: %w", err)
	}
	id.Host = []string{name}
	var own *corev1.Node
	others := map[netip.Addr]bool{} // not texts, because one IPv6 address has several texts
	for i, n := range nodes.Items {
		if n.Name == name {
			own = &nodes.Items[i]
			continue
		}
		for _, a := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil {
				others[ip.Unmap()] = true
			}
		}
	}
	if own == nil {
		return id, nil
	}
	for _, a := range own.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		ip = ip.Unmap()
		switch {
		case err != nil || others[ip]: // omit host names, which a node could invent, and addresses that another node also reports
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
		err = fmt.Errorf("%w: the token is unknown to the API server or expired", server.ErrDenied)
	case r.Audience != "" && !slices.Contains(s.Audiences, r.Audience):
		err = fmt.Errorf("%w: the token is not for the audience %s", server.ErrDenied, r.Audience)
	case s.User.Username != want:
		err = fmt.Errorf("%w: the token belongs to %s, not to %s", server.ErrDenied, s.User.Username, want)
	}
	return s, err
}

// Validity and renewal interval of a server's Lease, as in upstream.
const (
	leaseSeconds = 30
	renewEvery   = 15 * time.Second
)

// Leases counts the servers of the network proxy. Each server has one Lease. The method Servers
// finds the Leases by their namespace and labels.
type Leases struct {
	API       kubernetes.Interface
	Namespace string
	Selector  string // for example k8s-app=konnectivity-server
}

// Servers implements agent.Counter. It returns the number of Leases that have not expired.
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

// Publish renews the Lease of a server until ctx ends, and then deletes this Lease. The method
// Servers counts the Lease only if the labels match l.Selector. Publish also deletes the expired
// Leases of other servers. If a renewal or the deletion of an expired Lease fails, Publish passes
// the error to onError, and tries again at the next renewal.
func (l Leases) Publish(ctx context.Context, id string, labels map[string]string, onError func(error)) error {
	name := "konnectivity-proxy-server-" + id
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		if err := errors.Join(l.renew(ctx, name, id, labels), l.deleteExpired(ctx)); err != nil && ctx.Err() == nil {
			onError(err)
		}
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
			defer cancel()
			err := l.API.CoordinationV1().Leases(l.Namespace).Delete(last, name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("lease %s not deleted, so it stays until it expires: %w", name, err)
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
		return fmt.Errorf("lease %s not renewed: %w", name, err)
	}
	return nil
}

// deleteExpired deletes the expired Leases, because their servers no longer run.
func (l Leases) deleteExpired(ctx context.Context) error {
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
			errs = append(errs, fmt.Errorf("expired lease %s not deleted: %w", lease.Name, err))
		}
	}
	return errors.Join(errs...)
}
