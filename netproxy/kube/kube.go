// Package kube is what a network proxy asks a Kubernetes API: whether an
// agent's token is good, and how many servers there are. It carries no
// connection.
package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cloudsim-dev/allinone/netproxy/server"
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

// Reviewer knows agents by the tokens of their service account: TokenReview.
type Reviewer struct {
	API            kubernetes.Interface
	Namespace      string
	ServiceAccount string
	Audience       string // "" for the API's own
}

// Authenticate is server.Authenticator's.
func (r Reviewer) Authenticate(ctx context.Context, token string) error {
	ask := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if r.Audience != "" {
		ask.Spec.Audiences = []string{r.Audience}
	}
	said, err := r.API.AuthenticationV1().TokenReviews().Create(ctx, ask, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("token review: %w", err)
	}
	want := "system:serviceaccount:" + r.Namespace + ":" + r.ServiceAccount
	switch s := said.Status; {
	case !s.Authenticated:
		return fmt.Errorf("%w: the API server does not know it, or it has expired", server.ErrDenied)
	case r.Audience != "" && !slices.Contains(s.Audiences, r.Audience):
		return fmt.Errorf("%w: it is not for the audience %s", server.ErrDenied, r.Audience)
	case s.User.Username != want:
		return fmt.Errorf("%w: it belongs to %s, not %s", server.ErrDenied, s.User.Username, want)
	}
	return nil
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
