package doctor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Answer contains the answer of a plugin, but not the passwords.
type Answer struct {
	CacheKeyType  string
	CacheDuration string
	Users         map[string]string // user name for each registry in the answer
}

// ReadAnswer reads the answer of a plugin for an image. It returns an error for every answer that
// the kubelet refuses. The kubelet ignores a refused answer as a whole and emits no event on the
// pod. ReadAnswer also refuses two kinds of answers that the kubelet accepts: an answer without a
// credential for the image, and an answer with a password but no user name.
func (p Provider) ReadAnswer(raw []byte, image string) (a Answer, err error) {
	var r struct {
		APIVersion    string  `json:"apiVersion"`
		Kind          string  `json:"kind"`
		CacheKeyType  string  `json:"cacheKeyType"`
		CacheDuration *string `json:"cacheDuration"`
		Auth          map[string]struct {
			Username string `json:"username"`
			Password string `json:"password"`
		} `json:"auth"`
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	var document json.RawMessage
	if err := d.Decode(&document); err != nil {
		return a, fmt.Errorf("the plugin's answer is not a CredentialProviderResponse: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return a, fmt.Errorf("the plugin's answer has more data after the JSON document")
	}
	if err := unmarshalStrict(document, &r); err != nil {
		return a, fmt.Errorf("the plugin's answer is not a CredentialProviderResponse: %w", err)
	}
	switch {
	case r.APIVersion != p.APIVersion || r.Kind != "CredentialProviderResponse":
		return a, fmt.Errorf("the plugin's answer is a %s %s, but must be a %s CredentialProviderResponse", r.APIVersion, r.Kind, p.APIVersion)
	case !slices.Contains([]string{"Image", "Registry", "Global"}, r.CacheKeyType):
		return a, fmt.Errorf("cacheKeyType of the plugin's answer is %q, but must be Image, Registry or Global", r.CacheKeyType)
	}
	a = Answer{CacheKeyType: r.CacheKeyType, CacheDuration: "defaultCacheDuration of CredentialProviderConfig", Users: map[string]string{}}
	if r.CacheDuration != nil {
		if _, err := time.ParseDuration(*r.CacheDuration); err != nil {
			return a, fmt.Errorf("cacheDuration of the plugin's answer is %q, which is not a duration", *r.CacheDuration)
		}
		a.CacheDuration = *r.CacheDuration
	}
	var not string
	for key, cred := range r.Auth {
		if ok, why := keyMatches(registryOf(key), image); !ok && !isDockerHub(key, image) {
			not = fmt.Sprintf(": key %q does not match: %s", key, why)
		} else if cred.Username == "" && cred.Password != "" {
			return a, fmt.Errorf("the plugin's answer has a password without a user name: containerd ignores such a password")
		} else {
			a.Users[key] = cred.Username
		}
	}
	if len(a.Users) == 0 {
		return a, fmt.Errorf("the plugin's answer has no credentials for %s%s; the kubelet keeps this answer for the cache duration: %s", image, not, a.CacheDuration)
	}
	return a, nil
}

// registryOf returns a URL for a key in a plugin's answer. If the key has no
// scheme, the function adds https. The function removes the path prefix /v1/ or
// /v2/, because the kubelet ignores this prefix.
func registryOf(key string) string {
	scheme, rest, ok := strings.Cut(key, "://")
	if !ok {
		scheme, rest = "https", key
	}
	host, path, _ := strings.Cut(rest, "/")
	if after, ok := strings.CutPrefix(path, "v2/"); ok {
		path = after
	} else {
		path = strings.TrimPrefix(path, "v1/")
	}
	if path != "" {
		path = "/" + path
	}
	return scheme + "://" + host + path
}

// isDockerHub reports whether the image is an image of docker.io and the key in a plugin's answer
// is index.docker.io. The kubelet uses this key for the image, although the names differ.
func isDockerHub(key, image string) bool {
	host, _, _ := strings.Cut(image, "/")
	return host == "docker.io" && strings.TrimPrefix(strings.TrimPrefix(registryOf(key), "https://"), "http://") == "index.docker.io"
}
