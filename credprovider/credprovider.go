// Package credprovider implements an image credential provider for the kubelet
// (KEP-2133, and KEP-4412 for service accounts). A run reads one request from
// standard input, writes one answer to standard output, and ends.
//
// The kubelet runs the plugin before image pulls, so a slow start of the plugin
// would delay pods. For a fast start, this package imports only the standard
// library, the cloud's client and small internal packages.
//
// The plugin answers only for registries in its own configuration, even if the
// kubelet's matchImages match other registries. It sends tokens only to the
// cloud in this configuration. It never sends tokens through a proxy. It also
// sends no tokens to a host that appears only in an image name, in an
// authentication challenge or in a redirect.
package credprovider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// These constants belong to the supported version of the protocol.
const (
	APIVersion   = "credentialprovider.kubelet.k8s.io/v1"
	requestKind  = "CredentialProviderRequest"
	responseKind = "CredentialProviderResponse"
)

// deadline is the longest duration of a run. Without this limit, a pod could
// wait a minute, because the kubelet kills a plugin only after a minute.
const deadline = 12 * time.Second

// maxRequest is the maximum size in bytes of a request and of the configuration
// file. The value is large, because a request can contain a token and
// annotations.
const maxRequest = 1 << 20

// Config is the configuration of the plugin. It contains no secrets.
type Config struct {
	// CloudURL is the URL of the cloud's API.
	CloudURL string `json:"cloudURL"`
	// CloudCAFile is the path of a PEM file with the certificate authority of an https CloudURL.
	// If CloudCAFile is empty, the plugin uses the certificate authorities of the system.
	CloudCAFile string `json:"cloudCAFile,omitempty"`
	// MetadataURL is the URL of the instance's metadata service. ReadConfig
	// replaces an empty MetadataURL with http://169.254.169.254.
	MetadataURL string `json:"metadataURL,omitempty"`
	// Registries contains the registries for which the plugin returns
	// credentials. Each registry has the form host[:port], exactly as in image
	// names.
	Registries []string `json:"registries"`
	// CacheDir is the folder of the cache, which stores credentials between
	// runs. Only the user that runs the plugin may access this folder. If
	// CacheDir is empty, the plugin uses no cache.
	CacheDir string `json:"cacheDir,omitempty"`
	// OptInAnnotation is the key of an annotation of Kubernetes service accounts. Pods of an
	// account with this annotation pull with the identity of the account. Pods of other accounts
	// pull with the identity of the node. If the cloud refuses the token of an account with this
	// annotation, the plugin returns an error. It does not use the identity of the node instead. If
	// OptInAnnotation is empty, the plugin uses every token that the kubelet sends.
	OptInAnnotation string `json:"optInAnnotation,omitempty"`
}

// ReadConfig reads a configuration file and validates it (see Validate). It
// returns an error if the file has an unknown field.
func ReadConfig(r io.Reader) (c Config, err error) {
	d := json.NewDecoder(io.LimitReader(r, maxRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fault(CodeConfig, "the plugin's configuration file (--config) is not valid: %v", err)
	}
	if c.MetadataURL == "" {
		c.MetadataURL = client.DefaultMetadataURL
	}
	return c, c.Validate()
}

// Validate returns all errors in c, not only the first.
func (c Config) Validate() error {
	var bad []string
	for field, s := range map[string]string{"cloudURL": c.CloudURL, "metadataURL": c.MetadataURL} {
		if u, err := url.Parse(s); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			bad = append(bad, field+" must be http://HOST or https://HOST, without a user and a password") // the value can contain a password
		}
	}
	if len(c.Registries) == 0 {
		bad = append(bad, "registries must contain at least one host[:port]")
	}
	for _, r := range c.Registries {
		if !isRegistry(r) {
			bad = append(bad, fmt.Sprintf("registries: %q must have the form host[:port]", r))
		}
	}
	if len(bad) > 0 {
		slices.Sort(bad)
		return fault(CodeConfig, "%s", strings.Join(bad, "; "))
	}
	return nil
}

// isRegistry reports whether s has the form host[:port], as in the name of an
// image.
func isRegistry(s string) bool {
	if s == "" || strings.ContainsAny(s, "/*? @") {
		return false
	}
	if !strings.Contains(s, ":") {
		return true
	}
	host, port, err := net.SplitHostPort(s)
	n, bits := strconv.ParseUint(port, 10, 16)
	return err == nil && bits == nil && host != "" && n > 0
}

// kubeletRequest is the request of the kubelet. The plugin ignores unknown
// fields, which a later version of the protocol may have.
type kubeletRequest struct {
	APIVersion  string            `json:"apiVersion"`
	Kind        string            `json:"kind"`
	Image       string            `json:"image"`
	Token       string            `json:"serviceAccountToken"`
	Annotations map[string]string `json:"serviceAccountAnnotations"`
}

// kubeletResponse is the answer to the kubelet. The kubelet refuses answers
// with unknown fields.
type kubeletResponse struct {
	APIVersion    string                `json:"apiVersion"`
	Kind          string                `json:"kind"`
	CacheKeyType  string                `json:"cacheKeyType"`
	CacheDuration string                `json:"cacheDuration"`
	Auth          map[string]authConfig `json:"auth"`
}

type authConfig struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// These are values of the field cacheKeyType, which selects the images for
// which the kubelet may reuse an answer.
const (
	forRegistry = "Registry" // all images of the registry; for the credential of the node
	forImage    = "Image"    // only the repository of the image; for the credential of a service account
)

// Run answers one request. Each error has the type *Error and a stable code.
// After an error the kubelet logs the error and pulls without credentials.
func Run(ctx context.Context, cfg Config, stdin io.Reader, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	req, err := readRequest(ctx, stdin)
	if err != nil {
		return err
	}
	host, repo, err := cfg.place(req.Image)
	if err != nil {
		return err
	}
	token, err := cfg.identity(req)
	if err != nil {
		return err
	}
	c, err := cfg.credential(ctx, host, repo, token)
	if err != nil {
		return err
	}
	keyType := forRegistry
	if token != "" {
		keyType = forImage
	}
	raw, err := json.Marshal(kubeletResponse{
		APIVersion: APIVersion, Kind: responseKind, CacheKeyType: keyType, CacheDuration: c.reuse().String(),
		Auth: map[string]authConfig{host: {c.Username, c.Password}},
	})
	if err != nil {
		return fault(CodeOutput, "%v", err)
	}
	n, err := stdout.Write(append(raw, '\n')) // one write, so that the kubelet gets either the complete answer or no answer
	if err != nil || n <= len(raw) {
		return fault(CodeOutput, "the answer could not be written: %v", err)
	}
	return nil
}

// identity returns the token of the pod's service account, or "" if the pod
// pulls with the identity of the node. It returns an error if the account has
// the opt-in annotation, but the kubelet sent no token.
func (c Config) identity(req kubeletRequest) (token string, err error) {
	if c.OptInAnnotation == "" {
		return req.Token, nil
	}
	if _, in := req.Annotations[c.OptInAnnotation]; !in {
		return "", nil
	}
	if req.Token == "" {
		return "", fault(CodeInput, "the service account has the annotation %s, but the kubelet sent no token of this service account", c.OptInAnnotation)
	}
	return req.Token, nil
}

// readRequest reads one JSON document from stdin. It does not wait for the end
// of stdin, because the kubelet may keep the pipe open.
func readRequest(ctx context.Context, stdin io.Reader) (req kubeletRequest, err error) {
	type read struct {
		raw json.RawMessage
		err error
	}
	done := make(chan read, 1)
	in := &io.LimitedReader{R: stdin, N: maxRequest}
	go func() { // the select below waits for the result; if the read never returns, the goroutine ends with the process
		var r read
		r.err = json.NewDecoder(in).Decode(&r.raw)
		done <- r
	}()
	select {
	case <-ctx.Done():
		return req, fault(CodeInput, "no request arrived on standard input in time")
	case r := <-done:
		switch {
		case r.err != nil && in.N <= 0:
			return req, fault(CodeInput, "the request is larger than %d bytes", maxRequest)
		case errors.Is(r.err, io.EOF):
			return req, fault(CodeInput, "standard input is empty: want a %s of the kubelet", requestKind)
		case r.err != nil:
			return req, fault(CodeInput, "the request is not valid JSON")
		}
		if err := json.Unmarshal(bytes.TrimSpace(r.raw), &req); err != nil {
			return req, fault(CodeInput, "the request is not a %s", requestKind)
		}
	}
	switch {
	case req.APIVersion != APIVersion:
		return req, fault(CodeVersion, "apiVersion %.100q of the request is not supported: set apiVersion %s in the kubelet's CredentialProviderConfig", req.APIVersion, APIVersion)
	case req.Kind != requestKind:
		return req, fault(CodeVersion, "kind of the request is %.100q: want %s", req.Kind, requestKind)
	}
	return req, nil
}

// place splits an image name into registry and repository. It returns an error
// for a registry that is not in the configuration.
func (c Config) place(image string) (host, repo string, err error) {
	host, repo, ok := strings.Cut(image, "/")
	if !ok || host == "" || repo == "" {
		return "", "", fault(CodeImage, "image %.200q has no registry", image)
	}
	if !slices.Contains(c.Registries, host) {
		return "", "", fault(CodeHost, "registry %.200q is not in the plugin's registries (%s): remove the registry from the kubelet's matchImages, or add the registry to the plugin's configuration", host, strings.Join(c.Registries, ", "))
	}
	if i := strings.IndexByte(repo, '@'); i >= 0 {
		repo = repo[:i]
	}
	if i := strings.LastIndexByte(repo, ':'); i > strings.LastIndexByte(repo, '/') {
		repo = repo[:i]
	}
	return host, repo, nil
}

// DefaultConfigFile is the default path of the plugin's configuration.
const DefaultConfigFile = "/etc/cloudsim/credprovider.json"

// Main reads the configuration file and calls Run. It returns an error if args
// is not empty.
func Main(ctx context.Context, configFile string, args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) > 0 {
		return fault(CodeConfig, "unknown argument %.100q", args[0])
	}
	f, err := os.Open(configFile)
	if err != nil {
		return fault(CodeConfig, "%v", err)
	}
	defer f.Close()
	cfg, err := ReadConfig(f)
	if err != nil {
		return err
	}
	return Run(ctx, cfg, stdin, stdout)
}
