package conform

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/cloudsim-dev/allinone/internal/freeport"
)

// ErrNoProgram means that a folder does not contain the programs of an API server.
var ErrNoProgram = errors.New("program not found")

const startTimeout = 2 * time.Minute

// APIServer is a running API server with an empty cluster. It listens on loopback. On Linux, the
// kernel kills the API server when the process that started it ends.
type APIServer struct {
	// Admin is the client configuration of a user with all permissions.
	Admin *rest.Config
	// Kubeconfig is the content of a kubeconfig file for the user of Admin.
	Kubeconfig []byte

	dir      string
	programs []program // in the order of their start
}

// program contains a process and a channel. After the end of the process, startProcess sends the
// error of the process to the channel, and closes the channel.
type program struct {
	*exec.Cmd
	ended <-chan error
}

// StartAPIServer starts etcd and kube-apiserver from the folder binDir, and waits until the API
// server is ready. If one of these programs is missing, StartAPIServer starts this project's
// program kube in its place. If kube is also missing, the returned error wraps ErrNoProgram.
func StartAPIServer(ctx context.Context, binDir string) (*APIServer, error) {
	dir, err := os.MkdirTemp("", "cloudconform-")
	if err != nil {
		return nil, err
	}
	s := &APIServer{dir: dir}
	if err := s.startAll(ctx, binDir); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *APIServer) startAll(ctx context.Context, binDir string) error {
	ports, err := freeport.Choose(3)
	if err != nil {
		return err
	}
	token, key, certs := rand.Text(), filepath.Join(s.dir, "accounts.key"), filepath.Join(s.dir, "certs")
	tokens := filepath.Join(s.dir, "tokens")
	if err := errors.Join(writeKey(key), os.WriteFile(tokens, []byte(token+",admin,admin,system:masters\n"), 0o600)); err != nil {
		return err
	}
	etcd, peer := fmt.Sprintf("http://127.0.0.1:%d", ports[0]), fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	for _, p := range [][]string{
		{"etcd", "--data-dir=" + filepath.Join(s.dir, "etcd"), "--unsafe-no-fsync", "--listen-client-urls=" + etcd, "--advertise-client-urls=" + etcd,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer},
		{"kube-apiserver", "--etcd-servers=" + etcd, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[2]),
			"--cert-dir=" + certs, "--token-auth-file=" + tokens, "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
			"--service-account-issuer=https://kubernetes.default.svc", "--service-account-signing-key-file=" + key, "--service-account-key-file=" + key,
			"--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112", "--endpoint-reconciler-type=none"},
	} {
		if err := s.startProgram(binDir, p[0], p[1:]...); err != nil {
			return err
		}
	}
	s.Admin = &rest.Config{Host: fmt.Sprintf("https://127.0.0.1:%d", ports[2]), BearerToken: token}
	return s.waitUntilReady(ctx, filepath.Join(certs, "apiserver.crt"))
}

func (s *APIServer) startProgram(binDir, name string, args ...string) error {
	path, err := findProgram(binDir, name)
	if err != nil {
		return err
	}
	log, err := os.Create(s.log(name))
	if err != nil {
		return err
	}
	defer log.Close()                // the program has its own descriptor
	p := exec.Command(path, args...) //nolint:gosec,noctx // the user's program; Stop ends it
	p.Args[0] = name                 // the program kube selects a program by this name
	p.Stdout, p.Stderr = log, log
	ended, err := startProcess(p)
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	s.programs = append(s.programs, program{p, ended})
	return nil
}

func (s *APIServer) log(name string) string { return filepath.Join(s.dir, name+".log") }

// waitUntilReady waits until the API server is ready, and then sets s.Kubeconfig. The API server
// creates a self-signed certificate in the file cert. waitUntilReady stores this certificate in
// s.Admin and in s.Kubeconfig.
func (s *APIServer) waitUntilReady(ctx context.Context, cert string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := s.complete(ctx, cert)
		if err == nil {
			return nil
		}
		for _, p := range s.programs {
			select {
			case <-p.ended: //nolint:errcheck // p.ProcessState contains the result
				return fmt.Errorf("%s ended before the API server was ready: %s; the end of its output: %s", p.Args[0], p.ProcessState, s.logEnd(p.Args[0]))
			default:
			}
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return fmt.Errorf("the API server is not ready after %s: %w; the end of its output: %s", startTimeout, err, s.logEnd("kube-apiserver"))
		}
	}
}

func (s *APIServer) logEnd(name string) []byte {
	output, _ := os.ReadFile(s.log(name))
	return output[max(0, len(output)-1000):]
}

func (s *APIServer) complete(ctx context.Context, cert string) error {
	ca, err := os.ReadFile(cert)
	if err != nil {
		return err
	}
	s.Admin.CAData = ca
	kube, err := kubernetes.NewForConfig(s.Admin)
	if err != nil {
		return err
	}
	if err := kube.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return err
	}
	if _, err := kube.CoreV1().Namespaces().Get(ctx, leaseNamespace, metav1.GetOptions{}); err != nil {
		return err // the namespace does not exist yet, because the API server creates it some time after its start
	}
	s.Kubeconfig, err = kubeconfig(s.Admin, s.Admin.BearerToken)
	return err
}

func kubeconfig(config *rest.Config, token string) ([]byte, error) {
	const name = "conform"
	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: config.Host, CertificateAuthority: config.CAFile, CertificateAuthorityData: config.CAData,
			TLSServerName: config.ServerName, InsecureSkipTLSVerify: config.Insecure,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
}

// Stop ends the API server and deletes its data. Call it only once.
func (s *APIServer) Stop() error {
	for i := len(s.programs) - 1; i >= 0; i-- {
		_ = s.programs[i].Process.Kill() // a clean stop is not necessary, because Stop deletes the data
		<-s.programs[i].ended            //nolint:errcheck // a killed program always has an error
	}
	return os.RemoveAll(s.dir)
}

// writeKey writes a private key for the tokens of service accounts.
func writeKey(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// findProgram returns the absolute path of a program in dir. If dir does not contain the program,
// findProgram returns the path of kube in dir. The program kube contains etcd and kube-apiserver.
// If dir contains neither program, the returned error wraps ErrNoProgram.
func findProgram(dir, name string) (string, error) {
	for _, file := range []string{name, "kube"} {
		path, err := filepath.Abs(filepath.Join(dir, file))
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("the folder %s has neither the program %s nor the program kube (%w): run make build, or set --kube-bin-dir or KUBEBUILDER_ASSETS to a folder with kube, or with etcd and kube-apiserver", dir, name, ErrNoProgram)
}
