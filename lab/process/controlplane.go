package process

import (
	"crypto/tls"
	"fmt"
	"github.com/cloudsim-dev/allinone/lab"
	"time"
)

// Settings for the detection of dead nodes. A restarted kwok takes over the Leases of the earlier
// kwok after they have expired. It looks for expired Leases every quarter of leaseSeconds. So up to
// 1.25 times leaseSeconds can pass between the last renewal of a Lease and its takeover. A lab on
// loopback avoids this wait, because it deletes the old Leases with releaseLeases. A lab with
// docker compose does not delete these Leases.
//
// nodeMonitorGrace must be longer than 1.25 times leaseSeconds. Otherwise a restart of kwok could
// make all hollow nodes NotReady. But nodeMonitorGrace must not be much longer, because a crashed
// node counts as Ready until nodeMonitorGrace has passed. The defaults of Kubernetes are a Lease of
// 40 s and a grace period of 50 s. With the lab's values, the cluster detects a crash in 30 s, but
// kwok renews the Leases twice as often as with these defaults.
const (
	leaseSeconds     = 20
	nodeMonitorGrace = "30s"
)

// plan holds the inputs from which the lab builds its table of components.
type plan struct {
	Config
	dir      Dir
	ports    portsByName
	networks lab.Networks
	internet lab.Internet // access of real machines
	// releaseNetworks ends the reservation of the networks for this lab.
	releaseNetworks func()
	began           time.Time
	pki             lab.PKI
	programs        programSet
	say             func(format string, args ...any) // reports progress to the user
}

// etcd returns the component etcd, which calls fsync before it acknowledges a write. So neither
// SIGKILL nor a power cut undoes an acknowledged write. Each of etcd's two ports requires a client
// certificate that etcd's own authority signed.
func (p plan) etcd(conf *tls.Config) component {
	client, peer := p.ports.url("https", "etcd"), p.ports.url("https", "etcd-peer")
	return component{
		name: "etcd", address: client, program: p.programs.find("etcd"),
		args: []string{
			"--name=lab", "--data-dir=" + p.dir.path("etcd"), "--log-level=warn",
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=lab=" + peer,
			"--client-cert-auth", "--trusted-ca-file=" + p.pki.CertFile(lab.EtcdCA),
			"--cert-file=" + p.pki.CertFile("etcd"), "--key-file=" + p.pki.KeyFile("etcd"),
			"--peer-client-cert-auth", "--peer-trusted-ca-file=" + p.pki.CertFile(lab.EtcdCA),
			"--peer-cert-file=" + p.pki.CertFile("etcd"), "--peer-key-file=" + p.pki.KeyFile("etcd"),
			// These short times let the only member of etcd become the leader in 0.2 s instead
			// of 1 s. They are safe, because this member needs no votes of other members.
			"--heartbeat-interval=20", "--election-timeout=200",
		},
		ready: lab.HTTPProbe(client+"/readyz", conf),
	}
}

// apiServer returns the component kube-apiserver, which binds to loopback. The API server refuses
// anonymous requests, so the lab's probes use a client certificate. See endpointFlags for the
// address that pods use.
func (p *plan) apiServer(conf *tls.Config) component {
	url := p.ports.url("https", "kube-apiserver")
	return component{
		name: "kube-apiserver", address: url, program: p.programs.find("kube-apiserver"),
		args: append(append(p.egressFlags(), p.endpointFlags()...),
			"--bind-address="+host, fmt.Sprintf("--secure-port=%d", p.ports["kube-apiserver"]),
			"--tls-cert-file="+p.pki.CertFile("kube-apiserver"), "--tls-private-key-file="+p.pki.KeyFile("kube-apiserver"),
			"--client-ca-file="+p.pki.CertFile(lab.ClusterCA), "--anonymous-auth=false",
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
			"--etcd-servers="+p.ports.url("https", "etcd"), "--etcd-cafile="+p.pki.CertFile(lab.EtcdCA),
			"--etcd-certfile="+p.pki.CertFile("kube-apiserver-etcd-client"), "--etcd-keyfile="+p.pki.KeyFile("kube-apiserver-etcd-client"),
			"--kubelet-client-certificate="+p.pki.CertFile("kube-apiserver-kubelet-client"),
			"--kubelet-client-key="+p.pki.KeyFile("kube-apiserver-kubelet-client"),
			"--kubelet-certificate-authority="+p.pki.CertFile(lab.ClusterCA), "--kubelet-preferred-address-types=InternalIP,Hostname",
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-signing-key-file="+p.pki.KeyFile("service-account"),
			"--service-account-key-file="+p.pki.Dir+"/service-account.pub",
			"--service-cluster-ip-range="+lab.ServiceRange, "--allow-privileged", "--profiling=false",
			"--requestheader-client-ca-file="+p.pki.CertFile(lab.FrontProxyCA), "--requestheader-allowed-names=front-proxy-client",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
			"--requestheader-username-headers=X-Remote-User",
			"--proxy-client-cert-file="+p.pki.CertFile("front-proxy-client"), "--proxy-client-key-file="+p.pki.KeyFile("front-proxy-client"),
		),
		startAfter: []string{"etcd"},
		ready:      lab.HTTPProbe(url+"/readyz", conf),
	}
}

// controllerManager returns the component kube-controller-manager, which runs without the cloud
// controllers. The CCM runs these controllers instead.
func (p plan) controllerManager(conf *tls.Config) component {
	const name = "kube-controller-manager"
	_, pods, _ := p.podFlags()
	return component{
		name: name, address: p.ports.url("https", name), program: p.programs.find(name),
		args: append(append(p.secureFlags(name), pods...),
			"--cloud-provider=external", "--service-cluster-ip-range="+lab.ServiceRange,
			"--root-ca-file="+p.pki.CertFile(lab.ClusterCA), "--service-account-private-key-file="+p.pki.KeyFile("service-account"),
			"--cluster-signing-cert-file="+p.pki.CertFile(lab.ClusterCA), "--cluster-signing-key-file="+p.pki.KeyFile(lab.ClusterCA),
			"--use-service-account-credentials", "--leader-elect=false", "--profiling=false",
			"--node-monitor-grace-period="+nodeMonitorGrace,
			// The controller manager creates a service account and a token for each
			// controller before it starts the first controller. At the default limit
			// of 20 requests a second, these requests would take 4 s.
			"--kube-api-qps=1000", "--kube-api-burst=1000",
		),
		startAfter: []string{"kube-apiserver"},
		ready:      lab.HTTPProbe(p.ports.url("https", name)+"/healthz", conf),
	}
}

func (p plan) scheduler(conf *tls.Config) component {
	const name = "kube-scheduler"
	return component{
		name: name, address: p.ports.url("https", name), program: p.programs.find(name),
		args:       append(p.secureFlags(name), "--leader-elect=false", "--profiling=false"),
		startAfter: []string{"kube-apiserver"},
		ready:      lab.HTTPProbe(p.ports.url("https", name)+"/healthz", conf),
	}
}

// secureFlags returns the flags for a Kubernetes component that serves on loopback. The
// component asks the API server to authenticate and authorize the component's callers.
func (p plan) secureFlags(name string) []string {
	kubeconfig := p.dir.configFile(name + ".kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + host, fmt.Sprintf("--secure-port=%d", p.ports[name]),
		"--tls-cert-file=" + p.pki.CertFile(name), "--tls-private-key-file=" + p.pki.KeyFile(name),
		"--client-ca-file=" + p.pki.CertFile(lab.ClusterCA),
	}
}
