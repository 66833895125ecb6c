package lab

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/credprovider/node"
	"github.com/cloudsim-dev/allinone/internal/cert"
	"github.com/cloudsim-dev/allinone/internal/providerid"
	"github.com/cloudsim-dev/allinone/lab/real"
	"github.com/cloudsim-dev/allinone/netproxy/wire"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// InCluster returns a copy of c for machines that become nodes of a cluster. The machines call the
// API server at the host's address in their network (the VPC) and at the given port.
func InCluster(k kubernetes.Interface, keys PKI, port int, c real.Config) real.Config {
	server := "https://" + net.JoinHostPort(c.Network.Host.String(), strconv.Itoa(port))
	c.Identify = func(host string, address netip.Addr) (map[string][]byte, error) {
		return keys.identifyMachine(server, host, address)
	}
	c.NodeOf = func(ctx context.Context, name string) (string, error) {
		node, err := k.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		return node.Spec.ProviderID, nil
	}
	c.NotReady = func(ctx context.Context, name, providerID string) error {
		return notReadyNode(ctx, k, name, providerID)
	}
	return c
}

// notReadyNode sets the Node of a stopping machine to NotReady. The lab does this, because the
// kubelet ends before it can update its Node.
func notReadyNode(ctx context.Context, k kubernetes.Interface, name, providerID string) error {
	node, err := k.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !providerid.Same(node.Spec.ProviderID, providerID) {
		return nil
	}
	if err != nil {
		return err
	}
	now := metav1.Now()
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": node.UID},
		"status": map[string]any{"conditions": []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: "node is shutting down",
			LastHeartbeatTime: now, LastTransitionTime: now,
		}}},
	})
	if err != nil {
		return err
	}
	_, err = k.CoreV1().Nodes().PatchStatus(ctx, name, patch)
	return err
}

// RealPrograms returns the programs of a machine. The argument dir is the folder with the
// components of machines, self is the path of allinone, and find returns the path of a
// Kubernetes program.
func RealPrograms(dir, self string, find func(program string) string) real.Programs {
	return real.Programs{
		Machine: dir, Images: filepath.Join(dir, "images"),
		Plugin: filepath.Join(filepath.Dir(self), node.Plugin), Allinone: self,
		Kubelet: find("kubelet"), Proxy: find("kube-proxy"), Kubectl: find("kubectl"),
	}
}

// identifyMachine returns the files with which the programs on a machine prove their identity. The
// lab calls identifyMachine on each boot of the machine, because the machine's address may have
// changed. Each call signs new certificates for the kubelet. It does not read the old certificates
// from the machine's files, because root on the machine can replace these files with links or
// pipes.
func (p PKI) identifyMachine(server, name string, address netip.Addr) (map[string][]byte, error) {
	ca, err := p.load(ClusterCA)
	if err != nil {
		return nil, err
	}
	serverCert, serverKey, err := kubeletServer(name, address.AsSlice()).sign(ca)
	if err != nil {
		return nil, fmt.Errorf("certificate of the kubelet's server: %w", err)
	}
	clientCert, clientKey, err := kubeletClient(name).sign(ca)
	if err != nil {
		return nil, fmt.Errorf("certificate of the kubelet's client: %w", err)
	}
	kubelet, err := encodeKubeconfig(server, "kubelet-client", ca.CertPEM(), clientCert, clientKey)
	if err != nil {
		return nil, err
	}
	proxy, err := p.kubeconfig(server, "kube-proxy")
	return map[string][]byte{
		"ca.crt": ca.CertPEM(), "kubelet.crt": serverCert, "kubelet.key": serverKey,
		"kubelet.kubeconfig": kubelet, "kube-proxy.kubeconfig": proxy,
	}, err
}

// NetworkProxy returns the settings of the network proxy's agents on machines. The argument server
// is the address, as host:port, of the proxy server that the agents call.
func (p PKI) NetworkProxy(server string) *real.NetworkProxy {
	return &real.NetworkProxy{Server: server, CA: p.CertFile(ProxyCA), Issue: p.issueAgent}
}

// issueAgent signs the certificate of the network proxy's agent on a machine. The certificate
// contains the identifiers of the instance: its names, addresses and pod ranges. The proxy server
// accepts only these identifiers from the agent. The agent itself reads its identifiers from the
// metadata service.
func (p PKI) issueAgent(i cloudsim.Instance) (*cert.Pair, error) {
	ca, err := p.load(ProxyCA)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "proxy-agent:" + i.Name}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: asClient,
	}
	agentOf(i).Grant(template)
	return cert.Sign(template, ca, time.Now())
}

// agentOf returns the identifiers that the agent of an instance is allowed to announce to the proxy
// server: the names, addresses and pod ranges of the instance.
func agentOf(i cloudsim.Instance) wire.Identifiers {
	id := wire.Identifiers{Host: []string{i.Name}}
	for _, a := range i.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		switch {
		case err != nil:
			id.Host = append(id.Host, a.Address) // a host name
		case ip.Is4():
			id.IPv4 = append(id.IPv4, ip)
		default:
			id.IPv6 = append(id.IPv6, ip)
		}
	}
	for _, r := range i.PodRanges {
		if p, err := netip.ParsePrefix(r); err == nil {
			id.CIDR = append(id.CIDR, p.Masked())
		}
	}
	return id
}

// Hash returns a hash of text. The hash has eight hexadecimal digits. The lab uses it in names,
// such as the names of network interfaces.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}
