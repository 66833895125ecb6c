package kube_test

import (
	"errors"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/cloudsim-dev/allinone/netproxy/kube"
	"github.com/cloudsim-dev/allinone/netproxy/server"
)

func node(name string, pods []string, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: pods}}
	for _, a := range append([]string{name + ".internal"}, addresses...) {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Address: a})
	}
	return n
}

// For a pod's token, Authenticate returns the identifiers of the pod's node. The result omits
// addresses that two nodes report, and host names that a node reports as its addresses.
func TestReviewer(t *testing.T) {
	api := fake.NewClientset(
		node("node-1", []string{"10.1.0.0/24", "fd00:1::/64"}, "10.0.0.1", "fd00::1"),
		node("node-2", nil, "10.0.0.2"),
		node("node-3", nil, "10.0.0.3", "fd00::3"),
		node("thief", nil, "10.0.0.9", "10.0.0.2", "fd00:0::3", "::ffff:10.0.0.3"),
	)
	bound := map[string]string{"one": "node-1", "two": "node-2", "three": "node-3", "thief": "thief", "gone": "node-9"}
	api.PrependReactor("create", "tokenreviews", func(a k8stesting.Action) (bool, runtime.Object, error) {
		review := a.(k8stesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		user := authenticationv1.UserInfo{Username: "system:serviceaccount:kube-system:agent"}
		if name := bound[review.Spec.Token]; name != "" {
			user.Extra = map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/node-name": {name}}
		}
		if review.Spec.Token == "other" {
			user.Username = "system:serviceaccount:default:default"
		}
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: review.Spec.Token != "invalid", User: user}
		return true, review, nil
	})
	r := kube.Reviewer{API: api, Namespace: "kube-system", ServiceAccount: "agent"}
	for token, want := range map[string]string{
		"one":     "cidr=10.1.0.0%2F24&cidr=fd00%3A1%3A%3A%2F64&host=node-1&ipv4=10.0.0.1&ipv6=fd00%3A%3A1",
		"two":     "host=node-2", // the node thief reports the address of node-2, too
		"three":   "host=node-3", // the node thief reports the addresses of node-3 with other texts
		"thief":   "host=thief&ipv4=10.0.0.9",
		"gone":    "host=node-9",
		"unbound": "",
	} {
		if got, err := r.Authenticate(t.Context(), token); err != nil || got.String() != want {
			t.Errorf("token %q: got the identifiers %q, %v; want %q", token, got, err, want)
		}
	}
	for _, token := range []string{"invalid", "other"} {
		if got, err := r.Authenticate(t.Context(), token); !errors.Is(err, server.ErrDenied) {
			t.Errorf("token %q: got %v, %v; want ErrDenied", token, got, err)
		}
	}
}
