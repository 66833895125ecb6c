package hollow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

func (b *bench) createNodes() (one, two cloudsim.Instance) {
	b.Helper()
	one, two = b.create("one", "sim-1a"), b.create("two", "sim-1b")
	for _, i := range []cloudsim.Instance{one, two} {
		b.awaitNode(i.Name, "Ready", isReady)
		b.initialize(i)
	}
	return one, two
}

func (b *bench) serve(name string, changeFn func(*corev1.ServiceSpec)) *corev1.Service {
	b.Helper()
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": ""}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{
			{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP},
		}},
	}
	if changeFn != nil {
		changeFn(&svc.Spec)
	}
	svc, err := b.kube.CoreV1().Services("default").Create(b.Context(), svc, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return svc
}

// pod returns an endpoint as the EndpointSlice controller writes it.
func pod(name, ip, node string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses: []string{ip}, NodeName: &node,
		Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: name},
	}
}

func (b *bench) setEndpoints(svc *corev1.Service, pods ...discoveryv1.Endpoint) {
	b.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: svc.Name, Labels: map[string]string{"test": "", discoveryv1.LabelServiceName: svc.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   pods,
	}
	for _, p := range svc.Spec.Ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new(p.Name), Port: new(int32(8080)), Protocol: new(p.Protocol)})
	}
	api := b.kube.DiscoveryV1().EndpointSlices("default")
	_, err := api.Update(b.Context(), slice, metav1.UpdateOptions{})
	if err != nil {
		_, err = api.Create(b.Context(), slice, metav1.CreateOptions{})
	}
	if err != nil {
		b.Fatal(err)
	}
}

func url(i cloudsim.Instance, port int32, path string) string {
	return "http://" + net.JoinHostPort(i.InternalIP(), strconv.Itoa(int(port))) + path
}

// freshClient is a client that opens a new connection for each request.
var freshClient = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func get(c *http.Client, url string) (*http.Response, string, error) {
	resp, err := c.Get(url)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

// ask returns the answer of the responder as JSON fields.
func ask(c *http.Client, url string) (map[string]any, error) {
	resp, body, err := get(c, url+"?format=json")
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" {
		return nil, fmt.Errorf("%s: %s", resp.Status, body)
	}
	var a map[string]any
	return a, json.Unmarshal([]byte(body), &a)
}

func (b *bench) countAnswers(url string, n int) map[any]int {
	b.Helper()
	pods := map[any]int{}
	for range n {
		a, err := ask(freshClient, url)
		if err != nil {
			b.Fatal(err)
		}
		pods[a["pod"]]++
	}
	return pods
}

// awaitPods waits until exactly the given pods answer, each equally often.
func (b *bench) awaitPods(url string, pods ...any) {
	b.Helper()
	want := map[any]int{}
	for _, p := range pods {
		want[p] = 2
	}
	b.await(url+" answers with a pod of the Service", func() error {
		got := map[any]int{}
		for range 2 * len(pods) {
			a, err := ask(freshClient, url)
			if err != nil {
				return err
			}
			got[a["pod"]]++
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("got %v, want %v", got, want)
		}
		return nil
	})
}

func (b *bench) awaitRefusal(url string) {
	b.Helper()
	b.await(url+" refuses connections", func() error {
		resp, err := freshClient.Get(url)
		if err == nil {
			resp.Body.Close()
			return errors.New(resp.Status)
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
		return nil
	})
}

// A node port answers on every node. The responder answers in place of the pods. It assigns
// successive connections to the ready pods in turn. Each answer contains the name of the pod.
func TestNodePort(t *testing.T) {
	b := newBench(t)
	one, two := b.createNodes()
	svc := b.serve("web", nil)
	port := svc.Spec.Ports[0].NodePort
	b.awaitRefusal(url(one, port, "/"))

	starting := pod("web-0", "10.1.0.9", "one")
	starting.Conditions.Ready = new(false)
	b.setEndpoints(svc, pod("web-1", "10.1.0.1", "one"), pod("web-2", "10.1.0.2", "two"), pod("web-3", "10.1.0.3", "two"), starting)
	b.awaitPods(url(one, port, "/"), "web-1", "web-2", "web-3")
	b.awaitPods(url(two, port, "/anything"), "web-1", "web-2", "web-3")

	b.setEndpoints(svc, pod("web-2", "10.1.0.2", "two"))
	b.awaitPods(url(one, port, "/"), "web-2")
	a, err := ask(freshClient, url(one, port, "/"))
	if err != nil {
		t.Fatal(err)
	}
	delete(a, "client")
	want := map[string]any{
		"service": "web", "namespace": "default", "port": 80.0, "portName": "http", "nodePort": float64(port),
		"node": "one", "zone": "sim-1a", "pod": "web-2", "podIP": "10.1.0.2", "podNode": "two",
	}
	if diff := cmp.Diff(want, a); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	_, text, err := get(freshClient, url(two, port, "/"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"service:   web\n", "node:      two\n", "zone:      sim-1b\n", "pod:       web-2\n", "podNode:   two\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("line %q is missing in:\n%s", line, text)
		}
	}

	b.setEndpoints(svc, starting)
	b.awaitRefusal(url(one, port, "/"))
	if err := b.kube.CoreV1().Services("default").Delete(b.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.awaitRefusal(url(two, port, "/"))
}

// With externalTrafficPolicy Local, only nodes with a pod of the Service answer. Load
// balancers find these nodes through the health check node port.
func TestLocalTraffic(t *testing.T) {
	b := newBench(t)
	one, two := b.createNodes()
	svc := b.serve("web", func(s *corev1.ServiceSpec) {
		s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Ports = append(s.Ports, corev1.ServicePort{Name: "more", Port: 81, Protocol: corev1.ProtocolTCP})
	})
	port, check := svc.Spec.Ports[0].NodePort, svc.Spec.HealthCheckNodePort
	b.setEndpoints(svc, pod("web-1", "10.1.0.1", "one"), pod("web-2", "10.1.0.2", "one"))
	b.awaitPods(url(one, port, "/"), "web-1", "web-2")
	b.awaitRefusal(url(two, port, "/"))
	b.awaitHealth(url(one, check, "/healthz"), http.StatusOK, "2")
	b.awaitHealth(url(two, check, "/healthz"), http.StatusServiceUnavailable, "0")
	_, body, err := get(freshClient, url(one, check, "/"))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"service":{"namespace":"default","name":"web"},"localEndpoints":2,"serviceProxyHealthy":true}` + "\n"; body != want {
		t.Errorf("health: got %s, want %s", body, want)
	}

	b.setEndpoints(svc, pod("web-3", "10.1.0.3", "two"))
	b.awaitPods(url(two, port, "/"), "web-3")
	b.awaitRefusal(url(one, port, "/"))
	b.awaitHealth(url(one, check, "/healthz"), http.StatusServiceUnavailable, "0")
	b.awaitHealth(url(two, check, "/healthz"), http.StatusOK, "1")
}

func (b *bench) awaitHealth(url string, code int, weight string) {
	b.Helper()
	b.await(fmt.Sprintf("%s says %d", url, code), func() error {
		resp, body, err := get(freshClient, url)
		if err != nil {
			return err
		}
		if got := resp.Header.Get("X-Load-Balancing-Endpoint-Weight"); resp.StatusCode != code || got != weight {
			return fmt.Errorf("%s, weight %q: %s", resp.Status, got, body)
		}
		return nil
	})
}

// While a Node has the cluster autoscaler's deletion taint or a deletion timestamp, kube-proxy's
// /healthz fails, but /livez does not.
func TestProxyHealth(t *testing.T) {
	b := newBench(t)
	one, two := b.createNodes()
	b.awaitHealth(url(one, 10256, "/healthz"), http.StatusOK, "")
	b.patch("one", "", map[string]any{"spec": map[string]any{"taints": []any{
		map[string]any{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"},
	}}})
	b.awaitHealth(url(one, 10256, "/healthz"), http.StatusServiceUnavailable, "")
	b.awaitHealth(url(one, 10256, "/livez"), http.StatusOK, "")
	b.awaitHealth(url(two, 10256, "/healthz"), http.StatusOK, "")
	b.patch("one", "", map[string]any{"spec": map[string]any{"taints": nil}})
	b.awaitHealth(url(one, 10256, "/healthz"), http.StatusOK, "")
	b.awaitHealth(url(one, 10256, "/other"), http.StatusNotFound, "")

	b.patch("two", "", map[string]any{"metadata": map[string]any{"finalizers": []string{"example.com/stays"}}})
	b.deleteNode("two")
	b.awaitHealth(url(two, 10256, "/healthz"), http.StatusServiceUnavailable, "")
	b.patch("two", "", map[string]any{"metadata": map[string]any{"finalizers": nil}})
	b.awaitRefusal(url(two, 10256, "/livez")) // kube-proxy exits without its Node
}

// A machine that is off has no open sockets. Other machines keep their sockets and
// connections.
func TestPowerOffClosesSockets(t *testing.T) {
	b := newBench(t)
	one, two := b.createNodes()
	svc := b.serve("web", nil)
	port := svc.Spec.Ports[0].NodePort
	b.setEndpoints(svc, pod("web-1", "10.1.0.1", "one"))
	b.awaitPods(url(one, port, "/"), "web-1")
	b.awaitPods(url(two, port, "/"), "web-1")
	kept := &http.Client{Transport: &http.Transport{}}
	defer kept.CloseIdleConnections()
	if b.reusesConn(kept, url(two, port, "/")) {
		t.Fatal("the first request reused a connection")
	}

	b.callVerb(b.cloud.StopInstance, one)
	b.awaitRefusal(url(one, port, "/"))
	b.awaitRefusal(url(one, 10256, "/healthz"))
	b.callVerb(b.cloud.StartInstance, one)
	b.awaitPods(url(one, port, "/"), "web-1")
	b.setEndpoints(svc, pod("web-1", "10.1.0.1", "one"), pod("web-2", "10.1.0.2", "two"))
	b.awaitPods(url(two, port, "/"), "web-1", "web-2")
	if !b.reusesConn(kept, url(two, port, "/")) {
		t.Error("the proxy opened an unchanged port again")
	}

	b.stop()
	b.awaitRefusal(url(one, port, "/"))
	b.awaitRefusal(url(two, 10256, "/healthz"))
}

// reusesConn sends a request and reports whether the request used an existing connection.
func (b *bench) reusesConn(c *http.Client, url string) (reused bool) {
	b.Helper()
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(b.Context(), trace), http.MethodGet, url, nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		b.Fatal(err)
	}
	return reused
}

// All requests of a connection go to one pod. When this pod is gone, the
// responder resets the connection.
func TestConnectionHasOnePod(t *testing.T) {
	b := newBench(t)
	one, _ := b.createNodes()
	svc := b.serve("web", nil)
	port := svc.Spec.Ports[0].NodePort
	b.setEndpoints(svc, pod("web-1", "10.1.0.1", "one"), pod("web-2", "10.1.0.2", "two"))
	b.awaitPods(url(one, port, "/"), "web-1", "web-2")

	kept := &http.Client{Transport: &http.Transport{}}
	defer kept.CloseIdleConnections()
	first, err := ask(kept, url(one, port, "/"))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if next, err := ask(kept, url(one, port, "/")); err != nil || next["pod"] != first["pod"] {
			t.Fatalf("the connection moved from pod %v to pod %v, %v", first["pod"], next["pod"], err)
		}
	}
	b.setEndpoints(svc, pod("web-9", "10.1.0.9", "one"))
	b.awaitPods(url(one, port, "/"), "web-9")
	// net/http does not retry a POST, so the POST fails after the reset.
	if resp, err := kept.Post(url(one, port, "/"), "text/plain", nil); err == nil {
		resp.Body.Close()
		t.Errorf("a connection to a deleted pod answered %s", resp.Status)
	}
}

func TestAffinity(t *testing.T) {
	b := newBench(t)
	one, _ := b.createNodes()
	svc := b.serve("web", func(s *corev1.ServiceSpec) { s.SessionAffinity = corev1.ServiceAffinityClientIP })
	b.setEndpoints(svc, pod("web-1", "10.1.0.1", "one"), pod("web-2", "10.1.0.2", "two"))
	at := url(one, svc.Spec.Ports[0].NodePort, "/")
	b.await("the Service answers", func() error { _, err := ask(freshClient, at); return err })
	if pods := b.countAnswers(at, 8); len(pods) != 1 {
		t.Errorf("one client reached several pods: %v", pods)
	}
}

// The responder answers a UDP datagram and an HTTP request with the same text.
func TestUDP(t *testing.T) {
	b := newBench(t)
	one, _ := b.createNodes()
	svc := b.serve("dns", func(s *corev1.ServiceSpec) {
		s.Ports = []corev1.ServicePort{{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}}
	})
	b.setEndpoints(svc, pod("dns-1", "10.1.0.1", "one"))
	conn, err := net.Dial("udp", net.JoinHostPort(one.InternalIP(), strconv.Itoa(int(svc.Spec.Ports[0].NodePort))))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var answer []byte
	b.await("the Service answers", func() error {
		if _, err := conn.Write([]byte("anybody?")); err != nil {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		buf := make([]byte, 2048)
		n, err := conn.Read(buf)
		if answer = buf[:n]; err == nil && !strings.Contains(string(answer), "pod:       dns-1\n") {
			err = fmt.Errorf("got %q", answer)
		}
		return err
	})
	// A node ignores datagrams that look like answers, so two nodes never answer each other. The
	// old connection can still receive late answers to earlier datagrams. The test therefore counts
	// the answers on a new connection.
	conn, err = net.Dial("udp", conn.RemoteAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, datagram := range [][]byte{answer, []byte("question")} {
		if _, err := conn.Write(datagram); err != nil {
			t.Fatal(err)
		}
	}
	answers := 0
	for wait := 10 * time.Second; ; wait = 200 * time.Millisecond {
		if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 2048)); err != nil {
			break
		}
		answers++
	}
	if answers != 1 {
		t.Errorf("sent a datagram that looks like an answer, and a question: got %d answers, want 1", answers)
	}
}

// If another program uses a port, the responder logs one message. The responder opens the port when
// the port becomes free.
func TestPortInUse(t *testing.T) {
	b := newBench(t)
	one, _ := b.createNodes()
	svc := b.serve("web", nil)
	port := svc.Spec.Ports[0].NodePort
	other, err := net.Listen("tcp", net.JoinHostPort(one.InternalIP(), strconv.Itoa(int(port))))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	b.setEndpoints(svc, pod("web-1", "10.1.0.1", "one"))
	b.await("the proxy logs the reason", func() error {
		if b.log.count("cannot listen", `"one"`) == 0 {
			return errors.New("it has not")
		}
		return nil
	})
	more := b.serve("more", nil) // the responder opens another port although one port failed
	b.setEndpoints(more, pod("more-1", "10.1.0.2", "one"))
	b.awaitPods(url(one, more.Spec.Ports[0].NodePort, "/"), "more-1")
	other.Close()
	b.awaitPods(url(one, port, "/"), "web-1")
	if n := b.log.count("cannot listen"); n != 1 {
		t.Errorf("got %d log lines, want 1", n)
	}
}
