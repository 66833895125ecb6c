// Package egress writes how kube-apiserver finds its network proxy: the
// EgressSelectorConfiguration of --egress-selector-config-file. It opens no
// connection.
package egress

import (
	"errors"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// Selector says where kube-apiserver sends what goes to the cluster: to
// kubelets, pods, and services by reference. Everything else it dials itself.
type Selector struct {
	// Socket is a Unix socket, an absolute path, spoken to by gRPC; or by HTTP
	// CONNECT if HTTPConnect says so.
	Socket      string
	HTTPConnect bool
	// URL is an HTTP CONNECT frontend over TCP, https://HOST:PORT, instead of a
	// Socket, with the files of mutual TLS.
	URL                             string
	CABundle, ClientCert, ClientKey string
}

// Validate reports everything that is wrong with the Selector at once; what it
// lets through, kube-apiserver v1.36 takes.
func (s Selector) Validate() error {
	var errs []error
	if (s.Socket == "") == (s.URL == "") {
		errs = append(errs, errors.New("either a socket or a URL must be given"))
	}
	if s.Socket != "" && !filepath.IsAbs(s.Socket) {
		errs = append(errs, errors.New("the socket must be an absolute path: kube-apiserver may run in another folder"))
	}
	if s.URL != "" && !strings.HasPrefix(s.URL, "https://") {
		errs = append(errs, errors.New("the URL must begin with https://: kube-apiserver speaks TCP with mutual TLS only"))
	}
	if s.URL != "" && (s.CABundle == "" || s.ClientCert == "" || s.ClientKey == "") {
		errs = append(errs, errors.New("a URL needs an authority, a client certificate and its key"))
	}
	return errors.Join(errs...)
}

// YAML is the configuration file.
func (s Selector) YAML() ([]byte, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	protocol, transport := "GRPC", map[string]any{"uds": map[string]string{"udsName": s.Socket}}
	if s.HTTPConnect || s.URL != "" {
		protocol = "HTTPConnect"
	}
	if s.URL != "" {
		transport = map[string]any{"tcp": map[string]any{"url": s.URL, "tlsConfig": map[string]string{
			"caBundle": s.CABundle, "clientCert": s.ClientCert, "clientKey": s.ClientKey,
		}}}
	}
	return yaml.Marshal(map[string]any{
		"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
		"egressSelections": []any{map[string]any{
			"name":       "cluster",
			"connection": map[string]any{"proxyProtocol": protocol, "transport": transport},
		}},
	})
}
