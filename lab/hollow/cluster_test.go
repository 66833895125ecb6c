package hollow_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/eventually"
	"github.com/cloudsim-dev/allinone/internal/freeport"
	"github.com/cloudsim-dev/allinone/lab/hollow"
)

// kubernetesProgram is Kubernetes' multi-call binary, as the Makefile builds it.
const kubernetesProgram = "../../bin/kube"

// The variable shared holds one control plane (etcd, an API server and kwok) for all tests of the
// package.
var shared struct {
	once       sync.Once
	kubeconfig string
	err        error
	stop       []func()
}

func TestMain(m *testing.M) {
	code := m.Run()
	for i := len(shared.stop) - 1; i >= 0; i-- {
		shared.stop[i]()
	}
	os.Exit(code)
}

// startControlPlane starts etcd, an API server and the lab's kwok on loopback.
func startControlPlane() (kubeconfig string, err error) {
	dir, err := os.MkdirTemp("", "hollow")
	if err != nil {
		return "", err
	}
	shared.stop = append(shared.stop, func() { os.RemoveAll(dir) })
	ports, err := freeport.Choose(3)
	if err != nil {
		return "", err
	}
	on := func(i int) string { return "127.0.0.1:" + strconv.Itoa(ports[i]) }
	etcd, peer, secure := "http://"+on(0), "http://"+on(1), "https://"+on(2)
	file := func(name string) string { return filepath.Join(dir, name) }
	kubeconfig = file("kubeconfig")
	if err := errors.Join(
		writeKey(file("sa.key")),
		os.WriteFile(file("tokens"), []byte("secret,admin,admin,system:masters\n"), 0o600),
		writeKubeconfig(kubeconfig, secure),
	); err != nil {
		return "", err
	}
	for _, p := range [][]string{
		{"etcd", "--data-dir=" + file("etcd"), "--listen-client-urls=" + etcd, "--advertise-client-urls=" + etcd,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
			"--unsafe-no-fsync", "--log-level=error"},
		{"kube-apiserver", "--etcd-servers=" + etcd, "--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(ports[2]),
			"--cert-dir=" + file("certs"), "--token-auth-file=" + file("tokens"), "--authorization-mode=AlwaysAllow",
			"--service-account-issuer=https://test", "--service-account-key-file=" + file("sa.key"),
			"--service-account-signing-key-file=" + file("sa.key"), "--service-cluster-ip-range=10.96.0.0/16",
			"--disable-admission-plugins=ServiceAccount"},
		{"kwok", "--config=../kwok.yaml", "--kubeconfig=" + kubeconfig, "--node-lease-duration-seconds=20"},
	} {
		if p[0] == "kwok" {
			if err := awaitAPI(kubeconfig); err != nil {
				return "", err
			}
		}
		if err := start(dir, p); err != nil {
			return "", err
		}
	}
	return kubeconfig, nil
}

// start runs a program until the tests end. It writes the output into a log file in dir.
func start(dir string, args []string) error {
	log, err := os.Create(filepath.Join(dir, args[0]+".log"))
	if err != nil {
		return err
	}
	cmd := exec.Command(kubernetesProgram, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = []string{"HOME=" + dir}                                  // kwok reads a file in the user's home
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also ends the program when the tests are killed
	if err := cmd.Start(); err != nil {
		return errors.Join(err, log.Close())
	}
	shared.stop = append(shared.stop, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // an error is expected after Kill
		log.Close()
	})
	return nil
}

func writeKey(file string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

func writeKubeconfig(file, server string) error {
	c := api.NewConfig()
	c.Clusters["test"] = &api.Cluster{Server: server, InsecureSkipTLSVerify: true}
	c.AuthInfos["test"] = &api.AuthInfo{Token: "secret"}
	c.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: "test"}
	c.CurrentContext = "test"
	return clientcmd.WriteToFile(*c, file)
}

func connect(kubeconfig string) (*kubernetes.Clientset, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	return kubernetes.NewForConfig(cfg)
}

func awaitAPI(kubeconfig string) error {
	kube, err := connect(kubeconfig)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		_, err := kube.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(context.Background())
		if err == nil {
			_, err = kube.CoreV1().Namespaces().Get(context.Background(), "kube-node-lease", metav1.GetOptions{})
		}
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// bench holds a cloud, a cluster and a hypervisor. The hypervisor makes Nodes in the cluster from
// the instances of the cloud.
type bench struct {
	*testing.T
	cloud      *client.Client
	kube       *kubernetes.Clientset
	kubeconfig string
	log        *journal
	stop       func() // stops the hypervisor; more calls have no effect
}

// newBench starts a cloud, a cluster and a hypervisor. The addresses of the cloud's machines depend
// on the process id. Two test processes that run at the same time therefore rarely use the same
// addresses.
func newBench(t *testing.T, opts ...cloudtest.Option) *bench {
	t.Helper()
	if testing.Short() {
		t.Skip("starts an API server: run make e2e")
	}
	shared.once.Do(func() { shared.kubeconfig, shared.err = startControlPlane() })
	if shared.err != nil {
		t.Fatalf("control plane from %s: %v", kubernetesProgram, shared.err)
	}
	b := &bench{T: t, kubeconfig: shared.kubeconfig, log: &journal{}, stop: func() {}}
	var err error
	if b.kube, err = connect(b.kubeconfig); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.cleanUp)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the hypervisor:\n%s", b.log)
		}
	})
	b.cloud = cloudtest.Start(t, append(opts, cloudtest.WithConfig(func(c *engine.Config) {
		c.Instances = netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 80, byte(os.Getpid()), 0}), 24)
	}))...)
	b.start(b.cloud)
	return b
}

// cleanUp deletes all objects in the cluster that could change the result of the next test.
func (b *bench) cleanUp() {
	b.stop()
	ctx, now := context.Background(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	all := metav1.ListOptions{}
	err := errors.Join(
		b.kube.CoreV1().Nodes().DeleteCollection(ctx, now, all),
		b.kube.CoordinationV1().Leases("kube-node-lease").DeleteCollection(ctx, now, all),
		b.kube.CoreV1().Pods("default").DeleteCollection(ctx, now, all),
		b.kube.DiscoveryV1().EndpointSlices("default").DeleteCollection(ctx, now, metav1.ListOptions{LabelSelector: "test"}),
		b.kube.CoreV1().RESTClient().Delete().Namespace("default").Resource("services").
			VersionedParams(&metav1.ListOptions{LabelSelector: "test"}, scheme.ParameterCodec).Do(ctx).Error(),
	)
	if err != nil {
		b.Error(err)
	}
}

func (b *bench) start(c *client.Client) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	log := slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	go func() { ended <- hollow.Run(ctx, log, hollow.Config{Cloud: c, Kubeconfig: b.kubeconfig}) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Errorf("Run = %v", err)
		}
	})
	b.Cleanup(b.stop)
}

func (b *bench) await(condition string, checkFn func() error) {
	b.Helper()
	eventually.NoError(b, condition, checkFn)
}

func (b *bench) create(name, zone string) cloudsim.Instance {
	b.Helper()
	i, err := b.cloud.CreateInstance(b.Context(), cloudsim.CreateInstance{Name: name, Zone: zone, Type: "small"})
	if err != nil {
		b.Fatal(err)
	}
	return i
}

func (b *bench) callVerb(verbFn func(context.Context, cloudsim.InstanceID) (cloudsim.Instance, error), i cloudsim.Instance) {
	b.Helper()
	if _, err := verbFn(b.Context(), i.ID); err != nil {
		b.Fatal(err)
	}
}

// awaitNode waits until isAccepted returns true for the Node with the given name, and returns the
// Node.
func (b *bench) awaitNode(name, state string, isAccepted func(*corev1.Node) bool) *corev1.Node {
	b.Helper()
	var n *corev1.Node
	b.await("node "+name+" is "+state, func() (err error) {
		if n, err = b.kube.CoreV1().Nodes().Get(b.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !isAccepted(n) {
			n.ManagedFields = nil
			is, _ := json.Marshal(n)
			return fmt.Errorf("the state is %s", is)
		}
		return nil
	})
	return n
}

func condition(n *corev1.Node) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}

func isReady(n *corev1.Node) bool { return condition(n).Status == corev1.ConditionTrue }

func isOff(n *corev1.Node) bool {
	c := condition(n)
	_, handed := n.Labels["kwok.x-k8s.io/node"]
	return c.Status == corev1.ConditionFalse && c.Reason == "KubeletNotReady" && c.Message == "node is shutting down" && !handed
}

func (b *bench) awaitAbsent(name string) {
	b.Helper()
	if _, err := b.kube.CoreV1().Nodes().Get(b.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		b.Errorf("node %s exists: %v", name, err)
	}
}

// initialize changes an instance's new Node as the cloud controller manager does. The Node gets pod
// ranges with five usable IPv4 addresses and many IPv6 addresses.
func (b *bench) initialize(i cloudsim.Instance) {
	b.Helper()
	machine := netip.MustParseAddr(i.InternalIP()).As4()[3]
	ranges := []string{fmt.Sprintf("10.%d.0.0/29", machine), fmt.Sprintf("fd00:%x::/64", machine)}
	b.patch(i.Name, "", map[string]any{
		"metadata": map[string]any{"labels": map[string]any{corev1.LabelTopologyZone: i.Zone}},
		"spec":     map[string]any{"providerID": i.ProviderID, "taints": nil, "podCIDR": ranges[0], "podCIDRs": ranges},
	})
	b.patch(i.Name, "status", map[string]any{"status": map[string]any{"addresses": []any{
		map[string]any{"type": "InternalIP", "address": i.InternalIP()}, map[string]any{"type": "Hostname", "address": i.Name},
	}}})
}

func (b *bench) patch(node, subresource string, patch any) {
	b.Helper()
	raw, err := json.Marshal(patch)
	if err != nil {
		b.Fatal(err)
	}
	var sub []string
	if subresource != "" {
		sub = append(sub, subresource)
	}
	if _, err := b.kube.CoreV1().Nodes().Patch(b.Context(), node, types.MergePatchType, raw, metav1.PatchOptions{}, sub...); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) deleteNode(name string) {
	b.Helper()
	if err := b.kube.CoreV1().Nodes().Delete(b.Context(), name, metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
}

type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

// count returns the number of journal lines that contain all given words.
func (j *journal) count(words ...string) (n int) {
lines:
	for line := range strings.Lines(j.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue lines
			}
		}
		n++
	}
	return n
}
