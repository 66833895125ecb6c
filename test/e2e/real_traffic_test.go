package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// healthWindow is the time within which a load balancer must stop using a lost node. Within this
// time, two probes fail. The probes are two seconds apart, and each has a timeout of one second.
// The remaining time is a margin for a busy host.
const healthWindow = 20 * time.Second

// outsider is a client outside the cloud. It runs in its own network namespace, and the host is its
// router.
type outsider struct {
	l       *labRun
	name    string
	address string
}

func (l *labRun) newOutsider(t *testing.T) outsider {
	t.Helper()
	hash := l.hash()
	n, err := strconv.ParseUint(hash[:2], 16, 8)
	if err != nil {
		t.Fatal(err)
	}
	base := int(n) &^ 3 // start of a /30 range, chosen so that concurrent tests rarely use the same range
	c := outsider{l: l, name: "client-" + hash, address: fmt.Sprintf("198.51.100.%d", base+2)}
	host := fmt.Sprintf("198.51.100.%d", base+1)
	l.must("ip", "netns", "add", c.name)
	t.Cleanup(func() { // the context of the test has already ended when this runs
		if out, err := exec.Command("ip", "netns", "delete", c.name).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	l.must("ip", "link", "add", "ct-"+hash, "type", "veth", "peer", "name", "eth0", "netns", c.name)
	l.must("ip", "address", "add", host+"/30", "dev", "ct-"+hash)
	l.must("ip", "link", "set", "ct-"+hash, "up")
	for _, args := range []string{"address add " + c.address + "/30 dev eth0", "link set eth0 up", "link set lo up", "route add default via " + host} {
		l.must("ip", append([]string{"-n", c.name}, strings.Fields(args)...)...)
	}
	return c
}

func (c outsider) fetch(url string) (string, error) {
	return c.l.runProgram("ip", "netns", "exec", c.name, "curl", "-sf", "-m", "5", url)
}

// testRealClientAddress checks the source address of connections that a pod receives. If
// externalTrafficPolicy is Local, the source address is the client's address. If
// externalTrafficPolicy is Cluster, the source address is a node's address.
func (l *labRun) testRealClientAddress(t *testing.T) {
	c := l.newOutsider(t)
	url := l.realURL("web") + "clientip"
	policy := func(p string) {
		l.kubectl("patch", "service", "web", "-p", `{"spec":{"externalTrafficPolicy":"`+p+`"}}`)
	}
	sees := func(client bool) func() string {
		return func() string {
			for range 10 {
				source, err := c.fetch(url)
				if err != nil {
					return err.Error()
				}
				if strings.HasPrefix(source, c.address+":") != client {
					return "a pod sees " + source
				}
			}
			return ""
		}
	}
	policy("Local")
	l.awaitEmpty("pods see the address of the client", sees(true))
	policy("Cluster")
	l.awaitEmpty("pods see the address of a node", sees(false))
}

// datagram sends a request over UDP and returns the answer.
func (c outsider) datagram(host, port, ask string) (string, error) {
	return c.l.runProgram("ip", "netns", "exec", c.name, "bash", "-c", `exec 3<>"/dev/udp/$0/$1"; printf %s "$2" >&3; timeout 2 dd bs=256 count=1 status=none <&3`, host, port, ask)
}

// testRealUDP proves that a pod answers datagrams. If externalTrafficPolicy is Local, the pod sees
// the client's address.
func (l *labRun) testRealUDP(t *testing.T) {
	l.kubectl("expose", "deployment", "web", "--name=udp", "--protocol=UDP", "--type=LoadBalancer", "--port=53", "--target-port=8081")
	host, _, _ := strings.Cut(strings.TrimPrefix(l.realURL("udp"), "http://"), "/")
	l.awaitEmpty("a pod answers a datagram", func() string {
		c, err := net.Dial("udp", host+":53")
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return err.Error()
		}
		if _, err := c.Write([]byte("hostname")); err != nil {
			return err.Error()
		}
		answer := make([]byte, 256)
		n, err := c.Read(answer)
		if pod := string(answer[:n]); err != nil || !strings.HasPrefix(pod, "web-") {
			return fmt.Sprintf("%q %v", pod, err)
		}
		return ""
	})
	client := l.newOutsider(t)
	l.kubectl("patch", "service", "udp", "-p", `{"spec":{"externalTrafficPolicy":"Local"}}`)
	l.awaitEmpty("a pod sees the address of the sender of a datagram", func() string {
		source, err := client.datagram(host, "53", "clientip")
		if err != nil || !strings.HasPrefix(source, client.address+":") {
			return fmt.Sprintf("%q %v", source, err)
		}
		return ""
	})
}

// testRealAffinity proves that a Service with session affinity sends all requests of a client to
// one pod.
func (l *labRun) testRealAffinity(*testing.T) {
	l.kubectl("expose", "deployment", "web", "--name=sticky", "--session-affinity=ClientIP", "--type=LoadBalancer", "--port=80", "--target-port=8080")
	url := l.realURL("sticky")
	l.awaitEmpty("one pod receives all requests of a client", func() string {
		if seen, err := l.answersFrom(url, 60); err != nil || len(seen) != 1 {
			return fmt.Sprint(seen, err)
		}
		return ""
	})
}

// testRealDraining uses a node's label to exclude the node from external load balancers. It proves
// that the load balancer opens no new connections to this node, and that open connections continue.
func (l *labRun) testRealDraining(t *testing.T) {
	l.kubectl("expose", "deployment", "web", "--name=drain", "--type=LoadBalancer", "--port=80", "--target-port=8080", "--overrides",
		`{"spec":{"externalTrafficPolicy":"Local"}}`)
	url := l.realURL("drain")
	l.everyPod(url)
	host, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	conn, err := net.Dial("tcp", host+":80")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	ask := func() string {
		t.Helper()
		if _, err := fmt.Fprintf(conn, "GET /hostname HTTP/1.1\r\nHost: web\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		hostname, err := bufio.NewReader(resp.Body).ReadString('\n')
		if hostname == "" {
			t.Fatal(err)
		}
		return hostname
	}
	pod := ask()
	node := l.kubectl("get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
	const excluded = "node.kubernetes.io/exclude-from-external-load-balancers"
	l.kubectl("label", "node", node, excluded+"=true")
	l.awaitEmpty("the node receives no new connections", func() string {
		if seen, err := l.answersFrom(url, 30); err != nil || seen[pod] > 0 {
			return fmt.Sprint(seen, err)
		}
		return ""
	})
	if got := ask(); got != pod {
		t.Errorf("answer on the open connection: got the pod %s, want %s", got, pod)
	}
	l.kubectl("label", "node", node, excluded+"-")
}

// watch contains the results of many requests.
type watch struct {
	requests, lost int
	last           time.Time // time of the last failure
	why            error     // error of the last failure
}

// startWatch sends requests to a load balancer until the test calls stop. The call of
// stop returns the results.
func startWatch(url string) (stop func() watch) {
	var w watch
	var asking sync.WaitGroup
	done := make(chan struct{})
	asking.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if w.requests++; w.requests%10 == 0 {
				time.Sleep(5 * time.Millisecond) // leaves processor time for other programs
			}
			if _, err := fetch(url + "hostname"); err != nil {
				w.lost, w.last, w.why = w.lost+1, time.Now(), err
			}
		}
	})
	return func() watch {
		close(done)
		asking.Wait()
		return w
	}
}

// movesAway calls takeAway, which makes a node fail. Requests may fail only during the time
// healthWindow after this call. The Service has externalTrafficPolicy Local. With the policy
// Cluster, kube-proxy would send requests to the failed node's pods until Kubernetes notices the
// failure.
func (l *labRun) movesAway(t *testing.T, takeAway func()) {
	t.Helper()
	url := l.realURL("drain")
	l.everyPod(url)
	stop := startWatch(url)
	began := time.Now()
	takeAway()
	time.Sleep(healthWindow + 5*time.Second)
	w := stop()
	after := w.last.Sub(began)
	t.Logf("%d of %d requests were lost, the last one after %s: %v", w.lost, w.requests, max(after, 0).Round(time.Millisecond), w.why)
	if w.lost > 0 && after > healthWindow {
		t.Errorf("requests still fail %s after the change", after)
	}
}

// testRealZoneOutage proves that a load balancer stops sending traffic to a zone during an outage
// of this zone. After the outage, the machines of this zone are reachable again.
func (l *labRun) testRealZoneOutage(t *testing.T) {
	kubelet := l.kubeletOf("node-3")
	reached := func() error {
		c, err := net.DialTimeout("tcp", kubelet, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	if err := reached(); err != nil {
		t.Fatal(err)
	}
	l.movesAway(t, func() {
		l.cloud("faults", "create", "dark", "--zone", "sim-1c", "--effect", "zoneOutage", "--scope", "data")
	})
	if reached() == nil {
		t.Error("the kubelet of a zone in an outage answers")
	}
	l.cloud("faults", "delete", "dark")
	l.awaitEmpty("the zone is available again", func() string {
		if err := reached(); err != nil {
			return err.Error()
		}
		return ""
	})
	l.kubectl("wait", "node", "--all", "--for=condition=Ready", "--timeout=90s")
}

// testRealReplacement replaces every instance by a new instance. It proves that the load balancer
// loses no request during the replacement.
func (l *labRun) testRealReplacement(t *testing.T) {
	l.kubectl("create", "deployment", "roll", "--image="+agnhost, "--replicas=3", "--", "/agnhost", "netexec", "--http-port=8080", "--delay-shutdown=10")
	// Without a probe, a pod would be ready before its program listens, and the pod would refuse
	// early requests.
	l.kubectl("patch", "deployment", "roll", "-p", `{"spec":{"template":{"spec":{"containers":[{"name":"agnhost","readinessProbe":{"tcpSocket":{"port":8080},"periodSeconds":1}}]}}}}`)
	l.kubectl("create", "poddisruptionbudget", "roll", "--selector=app=roll", "--min-available=2")
	l.kubectl("expose", "deployment", "roll", "--type=LoadBalancer", "--port=80", "--target-port=8080")
	l.kubectl("rollout", "status", "deployment/roll", "--timeout=90s")
	url := l.realURL("roll")
	l.awaitEmpty("the load balancer answers", func() string {
		if _, err := l.answersFrom(url, 60); err != nil {
			return err.Error()
		}
		return ""
	})
	old := strings.Fields(l.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"))
	stop := startWatch(url)
	for i, node := range old {
		fresh := fmt.Sprintf("fresh-%d", i+1)
		l.cloud("instances", "create", fresh, "--zone", l.kubectl("get", "node", node, "-o", `jsonpath={.metadata.labels.topology\.kubernetes\.io/zone}`), "--service-account", "node", "--wait")
		l.untilPrints(fresh+" joins", "True", "get", "node", fresh, "--ignore-not-found", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		l.kubectl("label", "node", node, "node.kubernetes.io/exclude-from-external-load-balancers=true")
		l.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=110s")
		l.kubectl("rollout", "status", "deployment/roll", "--timeout=90s")
		l.cloud("instances", "delete", node, "--wait")
	}
	w := stop()
	t.Logf("%d requests while %d instances were replaced", w.requests, len(old))
	if w.lost > 0 || w.requests < 100 {
		t.Errorf("got %d lost of %d requests, the last at %s: %v; want 0 lost of at least 100", w.lost, w.requests, w.last.Format(time.TimeOnly), w.why)
	}
}
