// Package egress writes the EgressSelectorConfiguration that tells kube-apiserver to use a
// network proxy (--egress-selector-config-file). It opens no connection.
package egress

import (
	"errors"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/apiserver/v1beta1"
	"sigs.k8s.io/yaml"
)

// Selector describes the network proxy through which kube-apiserver connects to
// the cluster. kube-apiserver uses the proxy for connections to kubelets, to
// pods, and to Services that a webhook or APIService names. For all other
// connections, kube-apiserver uses no proxy.
type Selector struct {
	// Socket is the absolute path of a Unix socket. kube-apiserver uses gRPC on this
	// socket. If HTTPConnect is true, kube-apiserver uses HTTP CONNECT instead.
	Socket      string
	HTTPConnect bool
	// URL is https://HOST:PORT of an HTTP CONNECT frontend over TCP. Set either URL or
	// Socket. URL also needs the three files for mutual TLS: CABundle, ClientCert and
	// ClientKey.
	URL                             string
	CABundle, ClientCert, ClientKey string
}

// Validate returns an error for each field that is not valid. kube-apiserver v1.36 accepts
// every Selector that Validate accepts.
func (s Selector) Validate() error {
	var errs []error
	if (s.Socket == "") == (s.URL == "") {
		errs = append(errs, errors.New("either a socket or a URL must be given"))
	}
	if s.Socket != "" && !filepath.IsAbs(s.Socket) {
		errs = append(errs, errors.New("the socket must be an absolute path: kube-apiserver may have another working directory"))
	}
	if s.URL != "" && !strings.HasPrefix(s.URL, "https://") {
		errs = append(errs, errors.New("the URL must begin with https://: kube-apiserver uses TCP only with mutual TLS"))
	}
	if s.URL != "" && (s.CABundle == "" || s.ClientCert == "" || s.ClientKey == "") {
		errs = append(errs, errors.New("a URL needs a certificate authority, a client certificate and the key of this certificate"))
	}
	return errors.Join(errs...)
}

// YAML returns the contents of the configuration file.
func (s Selector) YAML() ([]byte, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	conn := v1beta1.Connection{ProxyProtocol: v1beta1.ProtocolGRPC, Transport: &v1beta1.Transport{}}
	if s.HTTPConnect || s.URL != "" {
		conn.ProxyProtocol = v1beta1.ProtocolHTTPConnect
	}
	if s.URL != "" {
		conn.Transport.TCP = &v1beta1.TCPTransport{URL: s.URL, TLSConfig: &v1beta1.TLSConfig{
			CABundle: s.CABundle, ClientCert: s.ClientCert, ClientKey: s.ClientKey,
		}}
	} else {
		conn.Transport.UDS = &v1beta1.UDSTransport{UDSName: s.Socket}
	}
	return yaml.Marshal(v1beta1.EgressSelectorConfiguration{
		TypeMeta:         metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "EgressSelectorConfiguration"},
		EgressSelections: []v1beta1.EgressSelection{{Name: "cluster", Connection: conn}},
	})
}
