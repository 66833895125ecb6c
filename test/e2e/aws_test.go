package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestAWSCCM runs AWS's unmodified cloud controller manager in a lab. It compares the calls of this
// program with the file testdata/aws-ccm.golden.
func TestAWSCCM(t *testing.T) {
	h := newLab(t)
	ccm := awsProgram(t, "aws-cloud-controller-manager")
	t.Parallel() // this test needs little CPU time
	h.must(h.allinone, "up", "--detach", "--port-base", "0", "--ccm", "none", "--dialect", "aws", "--profile", "instant")
	for i := range 3 {
		h.cloud("instances", "label", fmt.Sprintf("node-%d", i+1), "kubernetes.io/cluster/lab=owned")
	}
	// AWS's cloud controller manager removes its rules only from security groups with the tag of
	// the cluster. The dialect aws stores security groups as records, and tags as labels. This
	// command creates the record of the VPC's default security group, with the tag of the cluster.
	h.cloud("records", "create", "net-000001/default", "--kind", "aws-security-group", "--label", "kubernetes.io/cluster/lab=shared",
		"--document", `{"name":"default","description":"default VPC security group","network":"net-000001","rules":[{"protocol":"-1","group":"sg-00100000000000001"}]}`)
	stop := h.startAWS(t, ccm, "")
	for i := range 3 {
		name := fmt.Sprintf("node-%d", i+1)
		zone := fmt.Sprintf("sim-1%c", 'a'+i)
		h.untilPrints(name+" is initialized", fmt.Sprintf("aws:///%s/i-%017x %s sim-1 small taints:", zone, i+1, zone), "get", "node", name, "-o",
			`jsonpath={.spec.providerID} {.metadata.labels.topology\.kubernetes\.io/zone} {.metadata.labels.topology\.kubernetes\.io/region} {.metadata.labels.node\.kubernetes\.io/instance-type} taints:{.spec.taints}`)
		var vm struct{ Addresses []struct{ Address string } }
		if err := json.Unmarshal([]byte(h.cloud("instances", "get", name, "-o", "json")), &vm); err != nil {
			t.Fatal(err)
		}
		if got := h.kubectl("get", "node", name, "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`); got != vm.Addresses[0].Address {
			t.Errorf("node %s: got internal address %q, want %q", name, got, vm.Addresses[0].Address)
		}
	}

	// The cloud has a route for the pods of each node.
	h.untilRoutes(3)
	var routes []struct{ Destination, NextHop string }
	if err := json.Unmarshal([]byte(h.cloud("routes", "list", "-o", "json")), &routes); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		pods := h.kubectl("get", "node", fmt.Sprintf("node-%d", i+1), "-o", "jsonpath={.spec.podCIDR}")
		if id := fmt.Sprintf("i-%06x", i+1); !slices.ContainsFunc(routes, func(r struct{ Destination, NextHop string }) bool { return r.Destination == pods && r.NextHop == id }) {
			t.Errorf("routes: got %v, want a route to %s with the next hop %s", routes, pods, id)
		}
	}

	// The CCM creates a classic load balancer for a Service. The load balancer's host name contains
	// the load balancer's IP address.
	h.kubectl("create", "deployment", "web", "--image=web", "--replicas=3")
	h.kubectl("expose", "deployment", "web", "--type=LoadBalancer", "--port=8080")
	h.kubectl("wait", "service", "web", "--for=jsonpath={.status.loadBalancer.ingress[0].hostname}", "--timeout=60s")
	host := h.kubectl("get", "service", "web", "-o", "jsonpath={.status.loadBalancer.ingress[*].hostname}")
	parts := regexp.MustCompile(`^[a-z0-9]+-[0-9]+\.([0-9]+-[0-9]+-[0-9]+-[0-9]+)\.elb\.amazonaws\.com$`).FindStringSubmatch(host)
	if parts == nil {
		t.Fatalf("the Service has the host name %q", host)
	}
	address := strings.ReplaceAll(parts[1], "-", ".")
	h.answers("http://" + address + ":8080/")

	// The CCM writes the source ranges of the Service as rules into a security group. The range in
	// this patch does not contain the address of the test's client. So the load balancer must
	// refuse the client.
	h.kubectl("patch", "service", "web", "-p", `{"spec":{"loadBalancerSourceRanges":["192.0.2.0/24"]}}`)
	h.awaitEmpty("the load balancer refuses clients outside the source ranges", func() string {
		if _, err := page("http://"+address+":8080/", "service"); err == nil {
			return "the Service answers"
		}
		return ""
	})
	h.kubectl("patch", "service", "web", "-p", `{"spec":{"loadBalancerSourceRanges":null}}`)
	h.answers("http://" + address + ":8080/")
	h.testProxyProtocol(t, "http://"+address)
	h.kubectl("delete", "service", "web")
	h.awaitEmpty("the load balancer of the deleted Service is gone", func() string { return h.cloud("lb", "list", "-o", "name") })
	h.awaitEmpty("the security group of the deleted Service is gone", func() string {
		if all := h.cloud("records", "list", "-o", "json"); strings.Contains(all, "k8s-elb-") {
			return all
		}
		return ""
	})

	h.testNetworkLoadBalancer(t)
	stop()
	h.startAWS(t, ccm, "NLBSecurityGroupMode = Managed\n")
	h.testNetworkGroups()

	// The Node of a stopped instance has a taint, and a deleted instance has no Node.
	h.cloud("instances", "stop", "node-1", "--wait")
	h.untilPrints("a stopped instance's Node has the shutdown taint", "NoSchedule", "get", "node", "node-1", "-o", `jsonpath={.spec.taints[?(@.key=="node.cloudprovider.kubernetes.io/shutdown")].effect}`)
	h.cloud("instances", "start", "node-1", "--wait")
	h.kubectl("wait", "node", "node-1", "--for=condition=Ready", "--timeout=60s")
	h.cloud("instances", "delete", "node-2", "--wait")
	h.untilPrints("a deleted instance's Node is gone", "", "get", "node", "node-2", "--ignore-not-found", "-o", "name")
	h.untilRoutes(2)
	checkGolden(t, "testdata/aws-ccm.golden", h.awsCalls(t))

	// The dialect supports all calls of the cloud controller manager.
	metrics, err := fetch(h.component("cloudsim").Address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	if calls := regexp.MustCompile(`(?m)^cloudsim_dialect_(requests|unsupported)_total\{.*$`).FindAllString(metrics, -1); len(calls) == 0 || slices.ContainsFunc(calls, func(s string) bool { return strings.Contains(s, "unsupported_total") }) {
		t.Errorf("metrics: got %s; want calls, and none of them unsupported", strings.Join(calls, "\n"))
	}
}

func awsProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run make aws", err)
	}
	return path
}

// awsConf returns the configuration of AWS's cloud controller manager for a cluster with the given
// ID.
func awsConf(cluster string) string {
	return "[Global]\nRegion = sim-1\nZone = sim-1a\nVPC = vpc-00000000000000001\nSubnetID = subnet-00000000000000001\nRouteTableID = rtb-00000000000000001\nKubernetesClusterID = " + cluster + "\n"
}

// testProxyProtocol proves that the classic load balancer of the Service web sends PROXY headers if
// the Service has an annotation for PROXY headers. The load balancer must also send these headers
// after a change of the Service's port.
func (l *labRun) testProxyProtocol(t *testing.T, url string) {
	const annotation = "service.beta.kubernetes.io/aws-load-balancer-proxy-protocol"
	// The pods do not support PROXY headers. If a PROXY header precedes a request, a pod answers
	// with the status 400.
	gets := func(port string) (header bool, reason string) {
		_, err := fetch(url + ":" + port + "/")
		switch {
		case err == nil:
			return false, ""
		case strings.HasPrefix(err.Error(), "400 "):
			return true, ""
		}
		return false, err.Error()
	}
	l.kubectl("annotate", "service", "web", annotation+"=*")
	l.awaitEmpty("the load balancer sends PROXY headers", func() string {
		header, reason := gets("8080")
		if header || reason != "" {
			return reason
		}
		return "the pods got no header"
	})
	// The node port does not change, so the cloud controller manager does not set the policy for
	// PROXY headers again. As in AWS, the node port must keep this policy.
	l.kubectl("patch", "service", "web", "--type=json", "-p", `[{"op":"replace","path":"/spec/ports/0/port","value":8081}]`)
	l.awaitEmpty("the load balancer sends PROXY headers from another port", func() string {
		header, reason := gets("8081")
		if !header && reason == "" {
			t.Fatal("the pods of the new port got no header")
		}
		return reason
	})
	l.kubectl("annotate", "service", "web", annotation+"-")
	l.answers(url + ":8081/")
}

// testNetworkLoadBalancer creates, changes, uses and deletes a Service with a network load balancer
// of AWS.
func (l *labRun) testNetworkLoadBalancer(t *testing.T) {
	const annotation = "service.beta.kubernetes.io/aws-load-balancer-"
	l.exposeNetwork("net", "--port=8080")
	host := l.kubectl("get", "service", "net", "-o", "jsonpath={.status.loadBalancer.ingress[*].hostname}")
	parts := regexp.MustCompile(`^[a-z0-9]+-[0-9]+\.elb\.([0-9]+-[0-9]+-[0-9]+-[0-9]+)\.amazonaws\.com$`).FindStringSubmatch(host)
	if parts == nil {
		t.Fatalf("the Service has the host name %q", host)
	}
	url := "http://" + strings.ReplaceAll(parts[1], "-", ".")
	l.answers(url + ":8080/")

	// The CCM writes the source ranges as rules into the nodes' security group. The range in this
	// patch does not contain the address of this machine. So the load balancer must refuse the
	// requests of the test.
	l.kubectl("patch", "service", "net", "-p", `{"spec":{"loadBalancerSourceRanges":["192.0.2.0/24"]}}`)
	l.awaitEmpty("the network load balancer refuses clients outside the source ranges", func() string {
		if _, err := page(url+":8080/", "service"); err == nil {
			return "the Service answers"
		}
		return ""
	})
	l.kubectl("patch", "service", "net", "-p", `{"spec":{"loadBalancerSourceRanges":null}}`)
	l.answers(url + ":8080/")

	// Change the ports, the health checks, the attributes and the targets.
	l.kubectl("patch", "service", "net", "-p", `{"spec":{"ports":[{"name":"first","port":8080},{"name":"second","port":8081,"targetPort":8080}]}}`)
	l.answers(url + ":8081/")
	l.untilListeners("tcp/8080 3 targets, threshold 2; tcp/8081 3 targets, threshold 2")
	l.kubectl("annotate", "service", "net", "--overwrite", annotation+"healthcheck-healthy-threshold=3", annotation+"cross-zone-load-balancing-enabled=true",
		annotation+"target-group-attributes=preserve_client_ip.enabled=false")
	l.kubectl("label", "node", "node-3", "node.kubernetes.io/exclude-from-external-load-balancers=")
	l.untilListeners("tcp/8080 2 targets, threshold 3; tcp/8081 2 targets, threshold 3")
	l.kubectl("label", "node", "node-3", "node.kubernetes.io/exclude-from-external-load-balancers-")
	l.kubectl("patch", "service", "net", "--type=json", "-p", `[{"op":"remove","path":"/spec/ports/0"}]`)
	l.untilListeners("tcp/8081 3 targets, threshold 3")
	l.answers(url + ":8081/")
	l.deleteNetwork("net")
}

// testNetworkGroups creates and deletes a Service with a network load balancer that has its own
// security group.
func (l *labRun) testNetworkGroups() {
	l.exposeNetwork("dns", "--port=53", "--protocol=UDP")
	l.kubectl("patch", "service", "dns", "-p", `{"spec":{"loadBalancerSourceRanges":["10.0.0.0/8"]}}`)
	l.untilListeners("udp/53 3 targets, threshold 2")
	l.awaitEmpty("the source ranges of the Service are those of the load balancer", func() string {
		if all := l.cloud("lb", "list", "-o", "json"); !strings.Contains(strings.Join(strings.Fields(all), ""), `"sourceRanges":["10.0.0.0/8"]`) {
			return all
		}
		return ""
	})
	l.deleteNetwork("dns")
}

// exposeNetwork creates a Service with a network load balancer for the pods of web. It waits until
// the Service has a host name.
func (l *labRun) exposeNetwork(name string, args ...string) {
	l.t.Helper()
	const annotation = `"service.beta.kubernetes.io/aws-load-balancer-`
	l.kubectl(append([]string{
		"expose", "deployment", "web", "--type=LoadBalancer", "--name=" + name,
		`--overrides={"metadata":{"annotations":{` + annotation + `type":"nlb",` + annotation + `healthcheck-interval":"5",` + annotation + `healthcheck-healthy-threshold":"2"}}}`,
	}, args...)...)
	l.kubectl("wait", "service", name, "--for=jsonpath={.status.loadBalancer.ingress[0].hostname}", "--timeout=60s")
}

// deleteNetwork deletes a Service. It waits until the load balancer, target groups, listeners and
// security groups of the Service are gone. It also waits until the rules of the Service in the
// nodes' security group are gone.
func (l *labRun) deleteNetwork(name string) {
	l.t.Helper()
	l.kubectl("delete", "service", name)
	l.awaitEmpty("the network load balancer of the deleted Service is gone", func() string { return l.cloud("lb", "list", "-o", "name") })
	l.awaitEmpty("the records of the deleted Service are gone", func() string {
		all := l.cloud("records", "list", "-o", "json")
		for _, part := range []string{"aws-target-group", "aws-listener", `"k8s-`, "kubernetes.io/rule/nlb"} {
			if strings.Contains(all, part) {
				return part + " is in " + all
			}
		}
		return ""
	})
}

func (l *labRun) untilListeners(expected string) {
	l.t.Helper()
	l.awaitEmpty("the listeners are "+expected, func() string {
		var all []struct {
			Listeners []struct {
				Protocol    string
				Port        int
				Targets     []any
				HealthCheck struct{ HealthyThreshold int }
			}
		}
		if err := json.Unmarshal([]byte(l.cloud("lb", "list", "-o", "json")), &all); err != nil {
			return err.Error()
		}
		var got []string
		for _, lb := range all {
			for _, li := range lb.Listeners {
				got = append(got, fmt.Sprintf("%s/%d %d targets, threshold %d", li.Protocol, li.Port, len(li.Targets), li.HealthCheck.HealthyThreshold))
			}
		}
		slices.Sort(got)
		if s := strings.Join(got, "; "); s != expected {
			return s
		}
		return ""
	})
}

// awsCalls returns the sorted names of all calls that the cloud controller manager made.
func (l *labRun) awsCalls(t *testing.T) (out string) {
	t.Helper()
	var all []auditEntry
	if err := json.Unmarshal([]byte(l.cloud("audit", "--caller", "aws", "--limit", "16000", "-o", "json")), &all); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, c := range all {
		if c.DialectCall != "" {
			names[strings.TrimPrefix(c.DialectCall, "aws.")] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out += name + "\n"
	}
	return out
}

// startAWS starts AWS's cloud controller manager. It adds the text extraConfig to the configuration
// of this program. The returned function stops the program. Without a call of this function, the
// program stops at the end of the test.
func (l *labRun) startAWS(t *testing.T, ccm, extraConfig string) (stop func()) {
	t.Helper()
	env, err := exec.Command("sh", "-c", `eval "$("$0" dialect env aws --data-dir "$1")" && env`, l.allinone, l.dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(l.dir, "aws.conf")
	if err := os.WriteFile(conf, []byte(awsConf("lab")+extraConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(l.dir, "config", "ccm.kubeconfig")
	log, err := os.OpenFile(filepath.Join(l.dir, "logs", "aws-ccm.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(ccm, "--cloud-provider=aws", "--cloud-config="+conf, "--leader-elect=false", "--secure-port=0", "--node-monitor-period=1s",
		"--configure-cloud-routes=true", "--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/8", "--route-reconciliation-period=5s",
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig)
	cmd.Env = strings.Split(strings.TrimSpace(string(env)), "\n")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		err := cmd.Process.Kill()
		_ = cmd.Wait() // the error says that the program was killed
		if err := errors.Join(err, log.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}
