// Package credprovider is the kubelet's image credential provider (KEP-2133,
// and KEP-4412 for service accounts): one request on standard input, one
// answer on standard output, and no life beyond that.
//
// It imports the standard library and the cloud's client only, because the
// kubelet runs it for image pulls: how fast it starts is how fast a pod does.
//
// It answers only for registries that its own configuration names, however
// wide the kubelet's matchImages are, and sends tokens only to endpoints from
// that configuration: never to a host that an image, a challenge or a redirect
// names, and never through a proxy.
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

// The one version of the protocol that is spoken.
const (
	APIVersion   = "credentialprovider.kubelet.k8s.io/v1"
	requestKind  = "CredentialProviderRequest"
	responseKind = "CredentialProviderResponse"
)

// deadline is how long a run may take, whatever hangs. The kubelet kills a
// plugin after a minute, and makes its pod wait as long.
const deadline = 12 * time.Second

// maxRequest bounds what is read from the kubelet: a token and annotations.
const maxRequest = 1 << 20

// Config says what the plugin may do. It holds no secrets.
type Config struct {
	// CloudURL is the cloud's API.
	CloudURL string `json:"cloudURL"`
	// CloudCAFile has the authority of an https CloudURL (PEM); "" trusts
	// those of the system.
	CloudCAFile string `json:"cloudCAFile,omitempty"`
	// MetadataURL is the instance's metadata service; "" is the link-local
	// address.
	MetadataURL string `json:"metadataURL,omitempty"`
	// Registries are the registries to answer for: host[:port], exactly as
	// image names have them.
	Registries []string `json:"registries"`
	// CacheDir keeps answers between runs, for who runs the plugin and nobody
	// else; "" keeps none.
	CacheDir string `json:"cacheDir,omitempty"`
	// OptInAnnotation is one by which a Kubernetes service account says that
	// its pods pull as itself. Then those of all others pull as the node, and
	// no one falls back. "" uses whatever token the kubelet sends.
	OptInAnnotation string `json:"optInAnnotation,omitempty"`
}

// ReadConfig reads a configuration file, strictly.
func ReadConfig(r io.Reader) (c Config, err error) {
	d := json.NewDecoder(io.LimitReader(r, maxRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fault(CodeConfig, "the configuration cannot be read: %v", err)
	}
	if c.MetadataURL == "" {
		c.MetadataURL = client.DefaultMetadataURL
	}
	return c, c.Validate()
}

// Validate says everything that is wrong with c.
func (c Config) Validate() error {
	var bad []string
	for what, s := range map[string]string{"cloudURL": c.CloudURL, "metadataURL": c.MetadataURL} {
		if u, err := url.Parse(s); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			bad = append(bad, fmt.Sprintf("%s must be http://HOST or https://HOST, got %q", what, s))
		}
	}
	if len(c.Registries) == 0 {
		bad = append(bad, "registries needs at least one host[:port]")
	}
	for _, r := range c.Registries {
		if !isRegistry(r) {
			bad = append(bad, fmt.Sprintf("registries: %q is no host[:port]", r))
		}
	}
	if len(bad) > 0 {
		slices.Sort(bad)
		return fault(CodeConfig, "%s", strings.Join(bad, "; "))
	}
	return nil
}

// isRegistry reports whether s is host[:port], as in the name of an image.
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

// request is what the kubelet asks. Fields of later versions are ignored.
type request struct {
	APIVersion  string            `json:"apiVersion"`
	Kind        string            `json:"kind"`
	Image       string            `json:"image"`
	Token       string            `json:"serviceAccountToken"`
	Annotations map[string]string `json:"serviceAccountAnnotations"`
}

// response is what the kubelet reads, strictly.
type response struct {
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

// What the kubelet may reuse an answer for.
const (
	forRegistry = "Registry" // all images of the registry: the node's own credential
	forImage    = "Image"    // this repository: a service account's credential
)

// Run answers one request. It returns an *Error with a stable code, after
// which the kubelet pulls without credentials and logs the error.
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
	raw, err := json.Marshal(response{
		APIVersion: APIVersion, Kind: responseKind, CacheKeyType: keyType, CacheDuration: c.reuse().String(),
		Auth: map[string]authConfig{host: {c.Username, c.Password}},
	})
	if err != nil {
		return fault(CodeOutput, "%v", err)
	}
	n, err := stdout.Write(append(raw, '\n')) // one write: the kubelet reads all or nothing
	if err != nil || n <= len(raw) {
		return fault(CodeOutput, "the answer could not be written: %v", err)
	}
	return nil
}

// identity is the token to pull with: the pod's, or "" for the node's own.
func (c Config) identity(req request) (token string, err error) {
	if c.OptInAnnotation == "" {
		return req.Token, nil
	}
	if _, in := req.Annotations[c.OptInAnnotation]; !in {
		return "", nil
	}
	if req.Token == "" {
		return "", fault(CodeInput, "the service account has the annotation %s, and the kubelet sent no token of it", c.OptInAnnotation)
	}
	return req.Token, nil
}

// readRequest reads one document, and no further: a kubelet that never closes
// its end is answered all the same.
func readRequest(ctx context.Context, stdin io.Reader) (req request, err error) {
	type read struct {
		raw json.RawMessage
		err error
	}
	done := make(chan read, 1)
	in := &io.LimitedReader{R: stdin, N: maxRequest}
	go func() { // waited for below; a read that nobody ends ends with the process
		var r read
		r.err = json.NewDecoder(in).Decode(&r.raw)
		done <- r
	}()
	select {
	case <-ctx.Done():
		return req, fault(CodeInput, "no request came on standard input in time")
	case r := <-done:
		switch {
		case errors.Is(r.err, io.EOF):
			return req, fault(CodeInput, "standard input is empty: the kubelet writes a %s there", requestKind)
		case r.err != nil && in.N <= 0:
			return req, fault(CodeInput, "the request is larger than %d bytes", maxRequest)
		case r.err != nil:
			return req, fault(CodeInput, "the request is no JSON document")
		}
		if err := json.Unmarshal(bytes.TrimSpace(r.raw), &req); err != nil {
			return req, fault(CodeInput, "the request is no %s", requestKind)
		}
	}
	switch {
	case req.APIVersion != APIVersion:
		return req, fault(CodeVersion, "apiVersion %.100q is not %s: set it in the kubelet's CredentialProviderConfig", req.APIVersion, APIVersion)
	case req.Kind != requestKind:
		return req, fault(CodeVersion, "kind %.100q is not %s", req.Kind, requestKind)
	}
	return req, nil
}

// place takes an image apart, and refuses registries that are not ours.
func (c Config) place(image string) (host, repo string, err error) {
	host, repo, ok := strings.Cut(image, "/")
	if !ok || host == "" || repo == "" {
		return "", "", fault(CodeImage, "image %.200q has no registry", image)
	}
	if !slices.Contains(c.Registries, host) {
		return "", "", fault(CodeHost, "registry %.200q is not among those that the plugin answers for (%s): narrow the kubelet's matchImages, or add it", host, strings.Join(c.Registries, ", "))
	}
	if i := strings.IndexByte(repo, '@'); i >= 0 {
		repo = repo[:i]
	}
	if i := strings.LastIndexByte(repo, ':'); i > strings.LastIndexByte(repo, '/') {
		repo = repo[:i]
	}
	return host, repo, nil
}

// DefaultConfigFile is where the plugin's configuration is looked for.
const DefaultConfigFile = "/etc/cloudsim/credprovider.json"

// Main is Run by the configuration in a file.
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
