// Package doctor reports whether a kubelet would run an image credential
// provider for an image, and why. The kubelet itself does not report this. If
// no pattern matches the image, the kubelet pulls without credentials and logs
// no error.
//
// The package implements the rules of kubelet v1.36
// (k8s.io/kubernetes/pkg/credentialprovider). The plugin does not import the
// package doctor, because the YAML parser and the types of Kubernetes would
// make the start of the plugin slow.
package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/util/validation"
	kubelet "k8s.io/kubelet/config/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// ConfigVersion is the supported API version of the kubelet's
// CredentialProviderConfig.
const ConfigVersion = kubelet.GroupName + "/v1"

// Config is the part of the kubelet's configuration that describes its
// credential plugins.
type Config kubelet.CredentialProviderConfig

// Provider is one plugin of a Config.
type Provider kubelet.CredentialProvider

// Read reads a configuration as strictly as the kubelet does.
func Read(raw []byte) (c Config, err error) {
	raw, err = yaml.YAMLToJSONStrict(raw)
	if err == nil {
		err = unmarshalStrict(raw, &c)
	}
	if err != nil {
		return c, fmt.Errorf("CredentialProviderConfig is not valid, so the kubelet would not start: %w", err)
	}
	return c, nil
}

// unmarshalStrict decodes a JSON document as the kubelet does. It refuses
// unknown and repeated fields. The case of field names matters, in contrast to
// encoding/json.
func unmarshalStrict(raw []byte, into any) error {
	strict, err := json.UnmarshalStrict(raw, into)
	return errors.Join(append(strict, err)...)
}

// Lint returns the problems of c. It reports errors that prevent the start of
// the kubelet. The kubelet accepts patterns that never match an image, and
// patterns that can match other images than the user expects. Lint reports
// these patterns too.
func (c Config) Lint() (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if c.APIVersion != ConfigVersion || c.Kind != "CredentialProviderConfig" {
		bad("apiVersion and kind must be %s and CredentialProviderConfig, got %q and %q: the kubelet does not start", ConfigVersion, c.APIVersion, c.Kind)
	}
	if len(c.Providers) == 0 {
		bad("providers is empty: the kubelet does not start")
	}
	seen := map[string]bool{}
	for _, p := range c.Providers {
		if seen[p.Name] {
			bad("two providers have the name %s: the kubelet does not start", p.Name)
		}
		seen[p.Name] = true
		Provider(p).lint(func(format string, args ...any) { bad("provider "+p.Name+": "+format, args...) })
	}
	return problems
}

func (p Provider) lint(bad func(string, ...any)) {
	if p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ ") {
		bad("name must be a file name in --image-credential-provider-bin-dir")
	}
	if p.APIVersion != "credentialprovider.kubelet.k8s.io/v1" {
		bad("apiVersion is %q: this plugin supports only credentialprovider.kubelet.k8s.io/v1", p.APIVersion)
	}
	if p.DefaultCacheDuration == nil {
		bad("defaultCacheDuration is required: the kubelet does not start")
	} else if p.DefaultCacheDuration.Duration < 0 {
		bad("defaultCacheDuration must be 0s or more, got %s: the kubelet does not start", p.DefaultCacheDuration.Duration)
	}
	if len(p.MatchImages) == 0 {
		bad("matchImages is required: the kubelet does not start")
	}
	for _, m := range p.MatchImages {
		if why := cmp.Or(checkPattern(m), warnPattern(m)); why != "" {
			bad("matchImages %q: %s", m, why)
		}
	}
	if t := p.TokenAttributes; t != nil {
		lintTokens(t, bad)
	}
}

func lintTokens(t *kubelet.ServiceAccountTokenAttributes, bad func(string, ...any)) {
	if t.ServiceAccountTokenAudience == "" {
		bad("tokenAttributes.serviceAccountTokenAudience is required: the kubelet does not start")
	}
	if t.RequireServiceAccount == nil {
		bad("tokenAttributes.requireServiceAccount is required: the kubelet does not start")
	}
	if t.CacheType != kubelet.ServiceAccountServiceAccountTokenCacheType && t.CacheType != kubelet.TokenServiceAccountTokenCacheType {
		bad("tokenAttributes.cacheType must be ServiceAccount or Token, got %q: the kubelet does not start", t.CacheType)
	}
	if len(t.RequiredServiceAccountAnnotationKeys) > 0 && t.RequireServiceAccount != nil && !*t.RequireServiceAccount {
		bad("tokenAttributes.requiredServiceAccountAnnotationKeys need requireServiceAccount: true: the kubelet does not start")
	}
	for _, k := range t.RequiredServiceAccountAnnotationKeys {
		if slices.Contains(t.OptionalServiceAccountAnnotationKeys, k) {
			bad("tokenAttributes: the annotation key %s is both required and optional: the kubelet does not start", k)
		}
	}
	for field, keys := range map[string][]string{
		"requiredServiceAccountAnnotationKeys": t.RequiredServiceAccountAnnotationKeys,
		"optionalServiceAccountAnnotationKeys": t.OptionalServiceAccountAnnotationKeys,
	} {
		for i, k := range keys {
			if slices.Contains(keys[:i], k) {
				bad("tokenAttributes.%s contains %s twice: the kubelet does not start", field, k)
			}
			if why := validation.IsQualifiedName(strings.ToLower(k)); len(why) > 0 {
				bad("tokenAttributes.%s contains %q, which is not an annotation key: %s: the kubelet does not start", field, k, strings.Join(why, "; "))
			}
		}
	}
}

// MissingAnnotation compares the annotations of a service account with the
// annotations that the plugin p requires. It returns the key of the first
// missing annotation, or "" if no annotation is missing. For pods of an account
// that lacks a required annotation, the kubelet does not run the plugin and
// pulls without credentials.
func (p Provider) MissingAnnotation(annotations map[string]string) string {
	if p.TokenAttributes == nil {
		return ""
	}
	for _, k := range p.TokenAttributes.RequiredServiceAccountAnnotationKeys {
		if _, ok := annotations[k]; !ok {
			return k
		}
	}
	return ""
}

// PassedAnnotations returns the annotations of a service account that the
// kubelet passes to the plugin. The argument contains all annotations of the
// account. The field TokenAttributes of p must not be nil.
func (p Provider) PassedAnnotations(annotations map[string]string) map[string]string {
	passed := map[string]string{}
	for _, k := range slices.Concat(p.TokenAttributes.RequiredServiceAccountAnnotationKeys, p.TokenAttributes.OptionalServiceAccountAnnotationKeys) {
		if v, ok := annotations[k]; ok {
			passed[k] = v
		}
	}
	return passed
}

// checkPattern returns the reason why the pattern m of matchImages never
// matches an image. It returns "" if it finds no problem.
func checkPattern(m string) string {
	u, err := parse(m)
	host, _ := split(m)
	switch {
	case strings.Contains(m, "://"):
		return "a pattern with a scheme never matches an image: write only the host"
	case err != nil && strings.HasSuffix(host, ":*"):
		return "a port cannot be a wildcard: the kubelet does not start"
	case err != nil:
		return "the pattern is not valid, so the kubelet does not start: " + err.Error()
	case strings.ContainsRune(u.Path, '*'):
		return "a pattern with a wildcard in the path never matches: write " + host + " or a path prefix without *"
	case strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]"):
		return "an IPv6 address without a port never matches, because the kubelet reads the brackets as a character class: add the port"
	}
	return ""
}

// warnPattern returns a warning about a pattern that can match other images than
// the user expects. It returns "" if it finds no problem.
func warnPattern(m string) string {
	u, err := parse(m)
	host, _ := split(m)
	switch {
	case err == nil && (u.User != nil || u.RawQuery != ""):
		return "the kubelet ignores a user or a query in a pattern: write only host[:port] and, if necessary, a path"
	case host != strings.ToLower(host):
		return "a pattern with capital letters matches only images with the same capital letters"
	}
	return ""
}

func split(s string) (host, rest string) {
	host, rest, _ = strings.Cut(s, "/")
	return host, rest
}

// parse parses an image name or a pattern as a URL, as the kubelet does. If s
// has no scheme, the function adds https.
func parse(s string) (*url.URL, error) {
	if !strings.HasPrefix(s, "https://") && !strings.HasPrefix(s, "http://") {
		s = "https://" + s
	}
	return url.Parse(s)
}

// Match is the result of the comparison of one pattern with an image.
type Match struct {
	Pattern string `json:"pattern"`
	Matches bool   `json:"matches"`
	Reason  string `json:"reason"`
}

// Matches compares an image with every pattern of p. If at least one pattern
// matches, isMatch is true.
func (p Provider) Matches(image string) (all []Match, isMatch bool) {
	for _, m := range p.MatchImages {
		ok, why := matchesPattern(m, image)
		all = append(all, Match{m, ok, why})
		isMatch = isMatch || ok
	}
	return all, isMatch
}

// matchesPattern implements the kubelet's rule for a pattern and an image. The
// hosts of the pattern and of the image consist of parts that dots separate.
// Both hosts must have the same number of parts. Each part of the image's host
// must match the pattern's part at the same position. The ports must be equal,
// or the pattern and the image must both have no port. The path of the image
// must begin with the path of the pattern. The kubelet compares the paths as
// plain strings.
func matchesPattern(glob, image string) (bool, string) {
	if why := checkPattern(glob); why != "" {
		return false, why
	}
	return keyMatches(glob, image)
}

// keyMatches implements the rule of matchesPattern for a key in the answer of a plugin. Unlike a
// pattern of matchImages, a key may have a scheme.
func keyMatches(glob, image string) (bool, string) {
	g, err := parse(glob)
	if err != nil {
		return false, err.Error()
	}
	t, err := parse(image)
	if err != nil {
		return false, "the image name is not valid: " + err.Error()
	}
	gh, gp := hostPort(g)
	th, tp := hostPort(t)
	if gp != tp {
		return false, fmt.Sprintf("the port differs: %s in the pattern, %s in the image; there is no default port", orNone(gp), orNone(tp))
	}
	gs, ts := strings.Split(gh, "."), strings.Split(th, ".")
	if len(gs) != len(ts) {
		return false, fmt.Sprintf("the number of host parts differs: %d in the pattern, %d in the image; a * matches one part", len(gs), len(ts))
	}
	for i := range gs {
		if ok, err := path.Match(gs[i], ts[i]); err != nil || !ok {
			if strings.EqualFold(gs[i], ts[i]) {
				return false, fmt.Sprintf("the case differs: %q is not %q", ts[i], gs[i])
			}
			return false, fmt.Sprintf("the host part %q does not match %q", ts[i], gs[i])
		}
	}
	if !strings.HasPrefix(t.Path, g.Path) {
		return false, fmt.Sprintf("the path of the image does not begin with %s", g.Path)
	}
	if rest := strings.TrimPrefix(t.Path, g.Path); g.Path != "" && g.Path != "/" && rest != "" && !strings.HasPrefix(rest, "/") {
		return true, fmt.Sprintf("matches, but only as a text prefix: %s is a prefix of %s", g.Path, t.Path)
	}
	return true, "matches"
}

func hostPort(u *url.URL) (host, port string) {
	if h, p, err := net.SplitHostPort(u.Host); err == nil {
		return h, p
	}
	return u.Host, ""
}

func orNone(port string) string {
	if port == "" {
		return "none"
	}
	return port
}

// Normalize returns the image name in the form that the kubelet passes to
// plugins. The result contains the registry, but no tag and no digest.
func Normalize(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("image name %q is not valid: want [HOST[:PORT]/]PATH[:TAG]; the kubelet refuses the image before it runs a plugin: %w", image, err)
	}
	return named.Name(), nil
}

// Binary returns the path of the program that the kubelet runs for p. The
// argument dir is the kubelet's --image-credential-provider-bin-dir.
func (p Provider) Binary(dir string) string { return filepath.Join(dir, p.Name) }
