package ccm_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudapi "k8s.io/cloud-provider/api"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

// These are the names of three Leases. The old controller manager holds
// leaseBefore, and the new controller manager holds leaseAfter. The manager
// that runs the migrated controllers holds leaseMoves.
const (
	leaseBefore = "kube-controller-manager"
	leaseAfter  = "cloud-controller-manager"
	leaseMoves  = "cloud-provider-extraction-migration"
)

// TestHandover moves controllers from one controller manager to another
// controller manager according to KEP-2436, with a real API server. Both
// managers run at the same time. Each manager holds its own main Lease. Both
// managers use the same Lease for the migrated controllers. The first manager
// has all permissions, like the kube-controller-manager of a cluster before the
// migration. The second manager has only the permissions from the manifests in
// the folder deploy/ccm.
func TestHandover(t *testing.T) {
	s, cloud := startAPIServer(t), cloudtest.Start(t)
	s.apply(t, deployed+"/rbac.yaml")
	migrated := "--controllers=service-lb-controller,cloud-node-lifecycle-controller,service-lb-repair-controller,service-lb-orphan-controller,service-lb-endpoint-controller"
	_, _, stop := s.startManager(t, s.admin, cloudtest.As(t, cloud, "before", cloudsim.RoleCCM), "--enable-leader-migration", migrated, "--leader-elect-resource-name="+leaseBefore)
	awaitSlow(t, "the old CCM holds the leases that move", func() error { return s.checkHolders(t.Context(), leaseBefore, leaseMoves) })
	holder := s.leaseHolder(t.Context(), leaseMoves)
	url, out, _ := s.startManager(t, s.accountToken(t), cloudtest.As(t, cloud, "after", cloudsim.RoleCCM), "--enable-leader-migration")
	awaitSlow(t, "the new CCM holds its own lease", func() error { return s.checkHolders(t.Context(), leaseAfter) })

	s.register(t, cloud, "node-1")
	awaitSlow(t, "the new CCM runs the controllers that do not move", func() error { return s.initialized(t.Context(), "node-1") })
	first := s.serve(t, cloud, "one", 30081)
	if now := s.leaseHolder(t.Context(), leaseMoves); now != holder {
		t.Fatalf("%s leads, want %s", now, holder)
	}

	began := time.Now()
	stop()
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("stop of the old CCM: got %s, want at most 15s", took)
	}
	for _, lease := range []string{leaseBefore, leaseMoves} {
		if now := s.leaseHolder(t.Context(), lease); now == holder {
			t.Errorf("the old CCM ended and still holds the lease %s", lease)
		}
	}
	second := s.serve(t, cloud, "two", 30082)
	t.Logf("the new CCM served %.1f s after the old CCM got the signal to stop", time.Since(began).Seconds())
	if took := time.Since(began); took > time.Minute {
		t.Errorf("time from the stop of the old CCM until the new CCM served a Service: got %s, want at most 1m", took)
	}
	t.Run("the first CCM stops before the second CCM changes load balancers", func(t *testing.T) { neverTwo(t, cloud) })
	if lb, err := cloud.GetLoadBalancer(t.Context(), first.ID); err != nil || lb.IP != first.IP || second.ID == first.ID {
		t.Errorf("load balancer of the first Service: got %+v, error %v; want IP %s, and not the load balancer of the second Service: %+v", lb, err, first.IP, second)
	}
	t.Run("with the rules that are shipped", func(t *testing.T) { s.livesOn(t, cloud, first, out) })
	t.Run("every metric of dashboard and alerts is there", func(t *testing.T) { metricsExist(t, url) })
}

// TestLeaderIsKilled kills the leader of two replicas while the leader creates
// a load balancer. It proves that the other replica finishes the creation.
func TestLeaderIsKilled(t *testing.T) {
	s := startAPIServer(t)
	cloud := cloudtest.Start(t, withSlowProfile(func(p *engine.Profile) { p.LoadBalancer = 2 * time.Second }))
	s.apply(t, deployed+"/rbac.yaml")
	_, first, _ := s.startManager(t, s.accountToken(t), cloudtest.As(t, cloud, "first", cloudsim.RoleCCM))
	awaitSlow(t, "the first CCM holds the lease", func() error { return s.checkHolders(t.Context(), leaseAfter) })
	holder := s.leaseHolder(t.Context(), leaseAfter)
	s.startManager(t, s.accountToken(t), cloudtest.As(t, cloud, "second", cloudsim.RoleCCM))

	svc := newService(func(s *v1.Service) { s.Name, s.UID = "one", "" })
	if _, err := s.kube.CoreV1().Services("default").Create(t.Context(), svc, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var begun cloudsim.LoadBalancer
	awaitSlow(t, "the cloud creates the load balancer", func() error {
		l, err := cloud.ListLoadBalancers(t.Context(), cloudsim.ListOptions{})
		if err == nil && len(l.Items) == 1 {
			begun = l.Items[0]
			return nil
		}
		return fmt.Errorf("load balancers: got %d, error %v; want 1", len(l.Items), err)
	})
	first.kill()
	if begun.State != cloudsim.LoadBalancerProvisioning {
		t.Fatalf("the load balancer is already in the state %s", begun.State)
	}
	awaitSlow(t, "the Service has its address", func() error {
		now, err := s.kube.CoreV1().Services("default").Get(t.Context(), "one", metav1.GetOptions{})
		if err == nil && (!addressed(now) || now.Status.LoadBalancer.Ingress[0].IP != begun.IP) {
			err = fmt.Errorf("the Service has the ingress %+v", now.Status.LoadBalancer.Ingress)
		}
		return err
	})
	if now := s.leaseHolder(t.Context(), leaseAfter); now == holder || now == "" {
		t.Errorf("holder of the lease: got %q, want a process other than %q", now, holder)
	}
	if err := s.kube.CoreV1().Services("default").Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitSlow(t, "all load balancers are deleted", func() error {
		l, err := cloud.ListLoadBalancers(t.Context(), cloudsim.ListOptions{})
		if len(l.Items) > 0 {
			return fmt.Errorf("remaining load balancers: %+v", l.Items)
		}
		return err
	})
}

func (s *apiServer) checkHolders(ctx context.Context, leases ...string) error {
	for _, l := range leases {
		if s.leaseHolder(ctx, l) == "" {
			return fmt.Errorf("no process holds lease %s", l)
		}
	}
	return nil
}

func (s *apiServer) register(t *testing.T, cloud *client.Client, name string) {
	t.Helper()
	if _, err := cloud.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: name, Zone: "sim-1a", Type: "small"}); err != nil {
		t.Fatal(err)
	}
	n := newNode(name)
	n.UID = ""
	if _, err := s.kube.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (s *apiServer) initialized(ctx context.Context, name string) error {
	n, err := s.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err != nil:
		return err
	case hasTaint(n, cloudapi.TaintExternalCloudProvider), n.Spec.ProviderID == "", len(n.Status.Addresses) == 0, n.Labels[v1.LabelTopologyZone] != "sim-1a":
		return fmt.Errorf("got Node spec %+v, addresses %+v and labels %v; want no taint %s, a provider ID, addresses and the zone sim-1a", n.Spec, n.Status.Addresses, n.Labels, cloudapi.TaintExternalCloudProvider)
	}
	return nil
}

// serve creates a Service, waits for its address, and returns the load balancer. It fails the test
// if the Service's managedFields do not show that the CCM wrote the finalizer.
func (s *apiServer) serve(t *testing.T, cloud *client.Client, name string, nodePort int32) cloudsim.LoadBalancer {
	t.Helper()
	var ip string
	svc := newService(func(s *v1.Service) { s.Name, s.UID, s.Spec.Ports[0].NodePort = name, "", nodePort })
	if _, err := s.kube.CoreV1().Services("default").Create(t.Context(), svc, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitSlow(t, "Service "+name+" has its address", func() error {
		now, err := s.kube.CoreV1().Services("default").Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && !addressed(now) {
			err = errors.New("it has none")
		}
		if err == nil && !ccm.Wrote(now) {
			t.Errorf("managedFields: got %+v, want an entry in which the CCM owns the finalizer", now.ManagedFields)
		}
		if err == nil {
			ip = now.Status.LoadBalancer.Ingress[0].IP
		}
		return err
	})
	l, err := cloud.ListLoadBalancers(t.Context(), cloudsim.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := slices.IndexFunc(l.Items, func(lb cloudsim.LoadBalancer) bool { return lb.IP == ip })
	if n < 0 {
		t.Fatalf("load balancers: got %+v, want one with the address %s", l.Items, ip)
	}
	return l.Items[n]
}

// TestReadinessOfCCM sends readiness probes to a CCM in the same way as the kubelet. A CCM that
// cannot call the cloud is not ready, and the answer to the probe contains the reason. Its liveness
// probe still succeeds. A CCM that leads is ready.
func TestReadinessOfCCM(t *testing.T) {
	s, cloud := startAPIServer(t), cloudtest.Start(t)
	to, err := url.Parse(cloud.URL)
	if err != nil {
		t.Fatal(err)
	}
	way := httptest.NewServer(httputil.NewSingleHostReverseProxy(to))
	t.Cleanup(way.Close)
	far := *cloudtest.As(t, cloud, "ccm", cloudsim.RoleCCM)
	far.URL = way.URL
	at, _, _ := s.startManager(t, s.admin, &far)
	shipped := decodeObject[appsv1.Deployment](t, readManifest(t, deployed+"/deployment.yaml"), "Deployment/cloud-controller-manager").Spec.Template.Spec.Containers[0]
	health := func(want int, says ...string) error {
		status, body, err := requestPage(at + shipped.ReadinessProbe.HTTPGet.Path)
		if err == nil && (status != want || slices.ContainsFunc(says, func(s string) bool { return !strings.Contains(body, s) })) {
			err = fmt.Errorf("health check: got status %d and body %q, want status %d and the texts %q", status, body, want, says)
		}
		return err
	}
	awaitSlow(t, "the health check succeeds", func() error { return health(http.StatusOK) })
	way.CloseClientConnections()
	way.Close()
	awaitSlow(t, "the health check reports the outage, and the CCM keeps the lease", func() error {
		return health(http.StatusInternalServerError, "[-]cloud-health-controller failed", "[+]leaderElection ok")
	})
	if status, body, err := requestPage(at + shipped.LivenessProbe.HTTPGet.Path); err != nil || status != http.StatusOK {
		t.Errorf("liveness probe while only the cloud is down: got status %d, body %q, error %v; want status 200", status, body, err)
	}
}

// neverTwo fails the test if the first CCM changed a load balancer after the
// second CCM began to change load balancers.
func neverTwo(t *testing.T, cloud *client.Client) {
	trail, err := cloud.Audit(t.Context(), cloudsim.AuditOptions{})
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string][]time.Time{}
	for _, e := range trail.Items {
		if strings.HasPrefix(e.Operation, "loadBalancers.") && !strings.HasSuffix(e.Operation, ".list") && !strings.HasSuffix(e.Operation, ".get") {
			calls[e.Caller] = append(calls[e.Caller], e.Time)
		}
	}
	before, after := calls["before"], calls["after"]
	if len(before) == 0 || len(after) == 0 || slices.MaxFunc(before, time.Time.Compare).After(slices.MinFunc(after, time.Time.Compare)) {
		t.Errorf("changes of load balancers: got first CCM at %v, second CCM at %v; want changes of both, first CCM before second CCM", before, after)
	}
}

// livesOn changes objects of the cluster while only the second CCM runs. It
// fails the test if the API server forbids a call of this CCM.
func (s *apiServer) livesOn(t *testing.T, cloud *client.Client, first cloudsim.LoadBalancer, out *output) {
	ctx := t.Context()
	if err := s.kube.CoreV1().Services("default").Delete(ctx, "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitSlow(t, "a Service of the first CCM loses its finalizer", func() error {
		_, err := s.kube.CoreV1().Services("default").Get(ctx, "one", metav1.GetOptions{})
		l, listErr := cloud.ListLoadBalancers(ctx, cloudsim.ListOptions{})
		if !apierrors.IsNotFound(err) || listErr != nil || len(l.Items) != 1 || l.Items[0].IP == first.IP {
			return fmt.Errorf("read of the Service: got error %v, want not found; load balancers: got %+v, error %v; want only that of the second Service", err, l.Items, listErr)
		}
		return nil
	})
	i, err := cloud.ListInstances(ctx, cloudsim.ListOptions{Name: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cloud.DeleteInstance(ctx, i.Items[0].ID); err != nil {
		t.Fatal(err)
	}
	awaitSlow(t, "the Node of the deleted instance is deleted", func() error {
		if _, err := s.kube.CoreV1().Nodes().Get(ctx, "node-1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("read of the Node: got error %v, want not found", err)
		}
		return nil
	})
	if events, err := s.kube.CoreV1().Events("").List(ctx, metav1.ListOptions{}); err != nil || !slices.ContainsFunc(events.Items, func(e v1.Event) bool { return e.Reason == "DeletingNode" }) {
		t.Errorf("no event with the reason DeletingNode; error of the list: %v", err)
	}
	for line := range strings.Lines(out.String()) {
		if strings.Contains(strings.ToLower(line), "forbidden") {
			t.Errorf("the shipped rules do not permit: %s", line)
		}
	}
}

var metricName = regexp.MustCompile(`\b(?:cloudsim|node_controller|service_controller|route_controller|workqueue|leader_election|rest_client)_[a-z_]+`)

// metricsExist reads the metrics of the CCM at url. It fails the test if the
// dashboard or an alert uses a metric that the CCM does not serve.
func metricsExist(t *testing.T, url string) {
	served := getBody(t, url+"/metrics")
	for _, f := range []string{"dashboard.json", "alerts.yaml"} {
		raw, err := os.ReadFile(deployed + "/" + f)
		if err != nil {
			t.Fatal(err)
		}
		named := metricName.FindAllString(string(raw), -1)
		if len(named) < 5 {
			t.Errorf("%s names only %v", f, named)
		}
		for _, n := range named {
			if family := strings.TrimSuffix(n, "_bucket"); !strings.Contains(served, "\n# TYPE "+family+" ") {
				t.Errorf("%s names the metric %s, which the CCM does not serve", f, n)
			}
		}
	}
}

func getBody(t *testing.T, url string) string {
	t.Helper()
	status, body, err := requestPage(url)
	if err != nil || status != http.StatusOK {
		t.Fatalf("GET %s: got status %d, error %v; want status 200", url, status, err)
	}
	return body
}

// requestPage sends a GET request to a URL of a CCM. It does not verify the
// CCM's certificate, which is self-signed.
func requestPage(url string) (status int, body string, err error) {
	hc := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // loopback
	defer hc.CloseIdleConnections()
	resp, err := hc.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw), err
}
