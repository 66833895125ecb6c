package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestRealAWS runs AWS's unmodified cloud controller manager and credential provider with two real
// nodes.
func TestRealAWS(t *testing.T) {
	t.Parallel() // this test mostly waits
	l := newRealLab(t)
	ccm, provider := awsProgram(t, "aws-cloud-controller-manager"), awsProgram(t, "ecr-credential-provider")
	l.must(l.allinone, "up", "--detach", "--nodes", "real", "--instances", "2", "--port-base", "0", "--profile", "instant", "--volumes=false", "--ccm", "none", "--dialect", "aws", "--ecr-credential-provider", provider)
	nodes := []string{"node-1", "node-2"}
	for _, node := range nodes {
		l.cloud("instances", "label", node, "kubernetes.io/cluster/lab=owned")
	}
	l.startAWS(t, ccm, "")
	for i, node := range nodes {
		l.untilPrints(node+" is initialized and Ready", fmt.Sprintf("aws:///sim-1%c/i-%017x True taints:", 'a'+i, i+1), "get", "node", node, "-o",
			`jsonpath={.spec.providerID} {.status.conditions[?(@.type=="Ready")].status} taints:{.spec.taints}`)
	}
	l.walk(t, []step{
		{"metadata", (*labRun).testIMDS},
		{"routes", (*labRun).testAWSRoutes},
		{"private images", (*labRun).testECR},
	})
}

// testAWSRoutes proves that pods of two nodes can connect to each other through the routes of AWS's
// cloud controller manager.
func (l *labRun) testAWSRoutes(t *testing.T) {
	l.runOn("node-1", "client", agnhost, nil, "pause")
	l.runOn("node-2", "server", agnhost, nil, "netexec", "--http-port=8080")
	l.kubectl("wait", "pod", "client", "server", "--for=condition=Ready", "--timeout=90s")
	server := l.kubectl("get", "pod", "server", "-o", "jsonpath={.status.podIP}") + ":8080"
	l.connects("a pod of node-1 reaches a pod of node-2", "client", server)
	l.testRouteRepair(t, "client", server)
	if calls := l.awsCalls(t); !strings.Contains(calls, "ec2.CreateRoute\n") {
		t.Errorf("got calls\n%s\nwant also ec2.CreateRoute", calls)
	}
}

// testECR proves that a real node pulls a private image with AWS's unmodified credential provider.
// The provider gets the credentials of the node's role from the metadata service. With these
// credentials, it gets a token from the cloud's ECR API. The test also proves that the pull fails
// without a token or without the role, and that the pod's event contains the reason.
func (l *labRun) testECR(t *testing.T) {
	const registry = "000000000001.dkr.ecr.sim-1.amazonaws.com"
	l.cloud("repositories", "create", "team-a/web")
	l.pushImages("i-000001", "team-a/web:v1", "team-a/web:v2")

	l.cloud("faults", "create", "no-token", "--dialect-call", "aws.ecr.GetAuthorizationToken", "--operation", "registry.credential", "--effect", "error")
	l.runOn("node-1", "no-token", registry+"/team-a/web:v1", nil)
	l.refusedFor("the request has no password", "no-token")
	l.cloud("faults", "delete", "no-token")
	l.runOn("node-1", "with-token", registry+"/team-a/web:v1", nil)
	l.awaitPull("with-token")
	if out := l.cloud("audit", "--caller", "node", "-o", "json"); !strings.Contains(out, "aws.ecr.GetAuthorizationToken") {
		t.Errorf("the node made no call of ECR:\n%s", out)
	}

	l.cloud("role-bindings", "delete", "node")
	l.runOn("node-1", "lost-its-role", registry+"/team-a/web:v2", nil)
	l.refusedFor("lacks the permission registry.pull", "lost-its-role")
}

// testIMDS proves that a machine can read the paths of AWS's metadata service with a session token
// (IMDSv2). It also proves that the service returns the hardware address of the machine's
// interface.
func (l *labRun) testIMDS(t *testing.T) {
	const service = "http://169.254.169.254/latest/"
	curl := func(args ...string) string {
		return l.inMachine("i-000001", append([]string{"curl", "-s", "-m", "10"}, args...)...)
	}
	if code := curl("-o", "/dev/null", "-w", "%{http_code}", service+"meta-data/instance-id"); code != "401" {
		t.Errorf("request without a session: got status %s, want 401", code)
	}
	token := "X-aws-ec2-metadata-token: " + curl("-X", "PUT", "-H", "X-aws-ec2-metadata-token-ttl-seconds: 60", service+"api/token")
	if got := curl("-H", token, service+"meta-data/instance-id"); got != "i-00000000000000001" {
		t.Errorf("instance id: got %q", got)
	}
	if mac, link := curl("-H", token, service+"meta-data/mac"), l.inMachine("i-000001", "ip", "link", "show", "eth0"); !strings.Contains(link, "link/ether "+mac+" ") {
		t.Errorf("hardware address: got %q, want that of %s", mac, link)
	}
}
