package ccm_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/conform"
	"github.com/cloudsim-dev/allinone/internal/freeport"
)

// apiServer is a real kube-apiserver with a real etcd. It runs without
// kube-controller-manager.
type apiServer struct {
	url   string
	admin string // token of a user in the group system:masters
	kube  *kubernetes.Clientset
}

func startAPIServer(t *testing.T) *apiServer {
	t.Helper()
	if testing.Short() {
		t.Skip("boots an API server: run make e2e")
	}
	server, err := conform.StartAPIServer(t.Context(), "../bin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := &apiServer{url: server.Admin.Host, admin: server.Admin.BearerToken}
	config := rest.CopyConfig(server.Admin)
	config.QPS = -1
	if s.kube, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return s
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports, err := freeport.Choose(n)
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

// startProgram runs a program until the test ends or the caller calls stop.
// If the test fails, the function logs the last part of the program's output.
func startProgram(t *testing.T, env []string, name string, args ...string) (out *output, stop func()) {
	t.Helper()
	out = &output{kill: func() {}}
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	out.kill = func() { _ = cmd.Process.Kill(); <-ended }
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			<-ended
		}
	}
	t.Cleanup(func() {
		stop()
		if text := out.String(); t.Failed() {
			t.Logf("--- %s %s\n%s", filepath.Base(name), args[0], text[max(0, len(text)-3000):])
		}
	})
	return out, stop
}

// awaitSlow calls checkFn repeatedly, for up to two minutes, until checkFn
// returns nil. Tests use this function to wait for the effects of programs that
// run in separate processes.
func awaitSlow(t *testing.T, condition string, checkFn func() error) {
	t.Helper()
	began := time.Now()
	for {
		err := checkFn()
		if err == nil {
			t.Logf("%s after %.1f s", condition, time.Since(began).Seconds())
			return
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("timeout: %s: %v", condition, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (s *apiServer) apply(t *testing.T, path string) {
	t.Helper()
	ctx, docs, rbac := t.Context(), readManifest(t, path), s.kube.RbacV1()
	for name := range docs {
		var err error
		switch kind, _, _ := strings.Cut(name, "/"); kind {
		case "ServiceAccount":
			o := decodeObject[v1.ServiceAccount](t, docs, name)
			_, err = s.kube.CoreV1().ServiceAccounts(o.Namespace).Create(ctx, &o, metav1.CreateOptions{})
		case "ClusterRole":
			o := decodeObject[rbacv1.ClusterRole](t, docs, name)
			_, err = rbac.ClusterRoles().Create(ctx, &o, metav1.CreateOptions{})
		case "ClusterRoleBinding":
			o := decodeObject[rbacv1.ClusterRoleBinding](t, docs, name)
			_, err = rbac.ClusterRoleBindings().Create(ctx, &o, metav1.CreateOptions{})
		case "Role":
			o := decodeObject[rbacv1.Role](t, docs, name)
			_, err = rbac.Roles(o.Namespace).Create(ctx, &o, metav1.CreateOptions{})
		case "RoleBinding":
			o := decodeObject[rbacv1.RoleBinding](t, docs, name)
			_, err = rbac.RoleBindings(o.Namespace).Create(ctx, &o, metav1.CreateOptions{})
		default:
			t.Fatalf("the test cannot create an object of kind %s", name)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// accountToken returns a token of the CCM's service account. The test must call s.apply first,
// because s.apply creates this account.
func (s *apiServer) accountToken(t *testing.T) string {
	t.Helper()
	r, err := s.kube.CoreV1().ServiceAccounts("kube-system").CreateToken(t.Context(), "cloud-controller-manager", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}

// startManager starts the test binary in a separate process. In this process,
// TestMain runs the command of this package. The process ends at the end of the test,
// or when the caller calls stop. The process calls the API server with kubeToken. It
// calls the cloud with the token of the given client.
func (s *apiServer) startManager(t *testing.T, kubeToken string, cloud *client.Client, args ...string) (url string, out *output, stop func()) {
	t.Helper()
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["c"] = &clientcmdapi.Cluster{Server: s.url, InsecureSkipTLSVerify: true}
	cfg.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: kubeToken}
	cfg.Contexts["x"], cfg.CurrentContext = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}, "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		t.Fatal(err)
	}
	secret, err := cloud.Token()
	if err != nil {
		t.Fatal(err)
	}
	port := freePorts(t, 1)[0]
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, stop = startProgram(t, []string{"CCM_TEST_COMMAND=1"}, self, append([]string{
		"--kubeconfig=" + path, "--authentication-kubeconfig=" + path, "--authorization-kubeconfig=" + path,
		"--cloud-url=" + cloud.URL, "--cloud-token-file=" + writeTemp(t, "token", secret),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--cert-dir=" + t.TempDir(), "--node-monitor-period=1s",
		"--authorization-always-allow-paths=/healthz,/metrics",
	}, args...)...)
	return fmt.Sprintf("https://127.0.0.1:%d", port), out, stop
}

func (s *apiServer) leaseHolder(ctx context.Context, lease string) string {
	l, err := s.kube.CoordinationV1().Leases("kube-system").Get(ctx, lease, metav1.GetOptions{})
	if err != nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}
