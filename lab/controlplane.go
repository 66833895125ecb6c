package lab

import (
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

// Networks of a lab with hollow nodes. These networks exist only in the API. No
// process answers at the address of a pod or a service.
const (
	serviceRange = "10.96.0.0/16"
	// podRange is large enough for 16,384 hollow nodes, because each hollow node gets
	// one /24. Real nodes use the lab's own range: see realNetworks.
	podRange = "10.128.0.0/10"
)

// firstServiceIP is the address of the Service "kubernetes". clusterDNS is the address
// of the name server.
var (
	firstServiceIP = net.IPv4(10, 96, 0, 1).To4()
	clusterDNS     = net.IPv4(10, 96, 0, 10).To4()
)

// Settings for the detection of dead nodes. kwok renews the Lease of a node every quarter
// of leaseSeconds. A restarted kwok takes over a Lease when the Lease has expired. This
// happens at the latest 1.25 times leaseSeconds after the last renewal. A lab deletes the
// old Leases earlier (see releaseLeases), but docker compose does not. nodeMonitorGrace
// must be longer than 1.25 times leaseSeconds. Otherwise the death of kwok would look like
// the death of all nodes. nodeMonitorGrace must not be much longer than that, because a
// crashed node counts as Ready until nodeMonitorGrace has passed. The defaults of
// Kubernetes are a Lease of 40 s and a grace period of 50 s. The lab's values need twice
// as many renewals as these defaults, and detect a crash in 30 s. If a machine is switched
// off, its Node becomes NotReady before nodeMonitorGrace has passed, as in a kubelet's
// graceful shutdown.
const (
	leaseSeconds     = 20
	nodeMonitorGrace = "30s"
)

// plan holds the inputs from which the lab builds its table of components.
type plan struct {
	Config
	dir      Dir
	ports    ports
	networks networks
	// releaseNetworks ends the claim of the networks.
	releaseNetworks func()
	began           time.Time
	pki             pki
	programs        programs
	say             func(format string, args ...any) // reports progress to people
}

// etcd runs with fsync on, so acknowledged writes survive SIGKILL and power cuts. Both
// of its ports require a certificate of etcd's own authority.
func (p plan) etcd(conf *tls.Config) component {
	client, peer := p.ports.url("https", "etcd"), p.ports.url("https", "etcd-peer")
	return component{
		name: "etcd", address: client, program: p.programs.find("etcd"),
		args: []string{
			"--name=lab", "--data-dir=" + p.dir.path("etcd"), "--log-level=warn",
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=lab=" + peer,
			"--client-cert-auth", "--trusted-ca-file=" + p.pki.crt(etcdCA),
			"--cert-file=" + p.pki.crt("etcd"), "--key-file=" + p.pki.key("etcd"),
			"--peer-client-cert-auth", "--peer-trusted-ca-file=" + p.pki.crt(etcdCA),
			"--peer-cert-file=" + p.pki.crt("etcd"), "--peer-key-file=" + p.pki.key("etcd"),
			// A cluster with one member has no other votes to wait for. With these values
			// the member elects itself as the leader in 0.2 s instead of 1 s.
			"--heartbeat-interval=20", "--election-timeout=200",
		},
		ready: httpProbe(client+"/readyz", conf),
	}
}

// apiServer binds to loopback. See endpointFlags for the address that pods use. It
// refuses anonymous requests, so the lab's probes use a client certificate.
func (p *plan) apiServer(conf *tls.Config) component {
	url := p.ports.url("https", "kube-apiserver")
	return component{
		name: "kube-apiserver", address: url, program: p.programs.find("kube-apiserver"),
		args: append(append(p.egressFlags(), p.endpointFlags()...),
			"--bind-address="+host, fmt.Sprintf("--secure-port=%d", p.ports["kube-apiserver"]),
			"--tls-cert-file="+p.pki.crt("kube-apiserver"), "--tls-private-key-file="+p.pki.key("kube-apiserver"),
			"--client-ca-file="+p.pki.crt(clusterCA), "--anonymous-auth=false",
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
			"--etcd-servers="+p.ports.url("https", "etcd"), "--etcd-cafile="+p.pki.crt(etcdCA),
			"--etcd-certfile="+p.pki.crt("kube-apiserver-etcd-client"), "--etcd-keyfile="+p.pki.key("kube-apiserver-etcd-client"),
			"--kubelet-client-certificate="+p.pki.crt("kube-apiserver-kubelet-client"),
			"--kubelet-client-key="+p.pki.key("kube-apiserver-kubelet-client"),
			"--kubelet-certificate-authority="+p.pki.crt(clusterCA), "--kubelet-preferred-address-types=InternalIP,Hostname",
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-signing-key-file="+p.pki.key("service-account"),
			"--service-account-key-file="+p.pki.dir+"/service-account.pub",
			"--service-cluster-ip-range="+serviceRange, "--allow-privileged", "--profiling=false",
			"--requestheader-client-ca-file="+p.pki.crt(frontProxyCA), "--requestheader-allowed-names=front-proxy-client",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
			"--requestheader-username-headers=X-Remote-User",
			"--proxy-client-cert-file="+p.pki.crt("front-proxy-client"), "--proxy-client-key-file="+p.pki.key("front-proxy-client"),
		),
		after: []string{"etcd"},
		ready: httpProbe(url+"/readyz", conf),
	}
}

// controllerManager runs kube-controller-manager without the cloud controllers. The CCM runs
// these controllers instead.
func (p plan) controllerManager(conf *tls.Config) component {
	const name = "kube-controller-manager"
	_, pods, _ := p.podFlags()
	return component{
		name: name, address: p.ports.url("https", name), program: p.programs.find(name),
		args: append(append(p.secure(name), pods...),
			"--cloud-provider=external", "--service-cluster-ip-range="+serviceRange,
			"--root-ca-file="+p.pki.crt(clusterCA), "--service-account-private-key-file="+p.pki.key("service-account"),
			"--cluster-signing-cert-file="+p.pki.crt(clusterCA), "--cluster-signing-key-file="+p.pki.key(clusterCA),
			"--use-service-account-credentials", "--leader-elect=false", "--profiling=false",
			"--node-monitor-grace-period="+nodeMonitorGrace,
			// The controller manager creates a service account and a token for each
			// controller before it starts the first controller. At the default limit
			// of 20 requests a second, this alone would take 4 s.
			"--kube-api-qps=1000", "--kube-api-burst=1000",
		),
		after: []string{"kube-apiserver"},
		ready: httpProbe(p.ports.url("https", name)+"/healthz", conf),
	}
}

func (p plan) scheduler(conf *tls.Config) component {
	const name = "kube-scheduler"
	return component{
		name: name, address: p.ports.url("https", name), program: p.programs.find(name),
		args:  append(p.secure(name), "--leader-elect=false", "--profiling=false"),
		after: []string{"kube-apiserver"},
		ready: httpProbe(p.ports.url("https", name)+"/healthz", conf),
	}
}

// secure returns the flags for a Kubernetes component that serves on loopback. The
// component asks the API server to authenticate and authorize its callers.
func (p plan) secure(name string) []string {
	kubeconfig := p.dir.configFile(name + ".kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + host, fmt.Sprintf("--secure-port=%d", p.ports[name]),
		"--tls-cert-file=" + p.pki.crt(name), "--tls-private-key-file=" + p.pki.key(name),
		"--client-ca-file=" + p.pki.crt(clusterCA),
	}
}
