package conform

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// serverPrograms are the programs of an API server.
var serverPrograms = []string{"etcd", "kube-apiserver"}

// APIServer is a running API server with an empty cluster.
type APIServer struct {
	// Admin connects as a user with all permissions.
	Admin *rest.Config
	// Kubeconfig is the content of a kubeconfig file for the same user.
	Kubeconfig []byte

	env *envtest.Environment
	tmp string
}

// StartAPIServer starts etcd and kube-apiserver from the folder dir. The folder contains both
// programs, or the program kube of this project, which is both in one.
func StartAPIServer(dir string) (s *APIServer, err error) {
	tmp, err := os.MkdirTemp("", "cloudconform-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	for _, name := range serverPrograms {
		path, err := findProgram(dir, name)
		if err != nil {
			return nil, err
		}
		if err := os.Symlink(path, filepath.Join(tmp, name)); err != nil {
			return nil, err
		}
	}
	log.SetLogger(logr.Discard()) // otherwise the library prints a warning with a stack trace
	e := &envtest.Environment{BinaryAssetsDirectory: tmp}
	admin, err := e.Start()
	if err != nil {
		return nil, fmt.Errorf("start the API server from %s: %w", dir, errors.Join(err, e.Stop()))
	}
	return &APIServer{Admin: admin, Kubeconfig: e.KubeConfig, env: e, tmp: tmp}, nil
}

// Stop ends the API server and deletes its data.
func (s *APIServer) Stop() error { return errors.Join(s.env.Stop(), os.RemoveAll(s.tmp)) }

// findProgram returns the absolute path of a program in dir.
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
	return "", fmt.Errorf("%s has neither %s nor kube: run make build, or set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver", dir, name)
}
