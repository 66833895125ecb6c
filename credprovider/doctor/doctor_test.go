package doctor_test

import (
	"strings"
	"testing"

	kubelet "k8s.io/kubelet/config/v1"

	"github.com/cloudsim-dev/allinone/credprovider/doctor"
)

// The expected results are the results of a kubelet v1.36.
func TestMatches(t *testing.T) {
	for _, tc := range []struct {
		glob, image string
		want        bool
		why         string
	}{
		{"registry.sim", "registry.sim/a", true, ""},
		{"registry.sim", "registry.sim:5000/a", false, "port"},
		{"registry.sim:443", "registry.sim/a", false, "port"},
		{"*.sim", "a.registry.sim/a", false, "parts"},
		{"*.*.sim", "a.registry.sim/a", true, ""},
		{"*", "localhost/a", true, ""},
		{"*", "registry.sim/a", false, "parts"},
		{"*:5000", "localhost:5000/a", true, ""},
		{"reg*.sim", "registry.sim/a", true, ""},
		{"registry.sim/team", "registry.sim/team-evil/a", true, "text prefix"},
		{"registry.sim/team", "registry.sim/team/a", true, "matches"},
		{"registry.sim/team", "registry.sim/other", false, "path"},
		{"registry.sim/*", "registry.sim/x/a", false, "wildcard in the path"},
		{"registry.sim:*", "registry.sim:5000/a", false, "does not start"},
		{"[::1]:5000", "[::1]:5000/a", true, ""},
		{"[::1]", "[::1]/a", false, "IPv6"},
		{"REGISTRY.sim", "registry.sim/a", false, "the case differs"},
		{"REGISTRY.sim", "REGISTRY.sim/a", true, ""},
		{"registry.sim", "REGISTRY.sim/a", false, "the case differs"},
		{"[fd00::1]:5000", "[fd00::2]:5000/a", false, "does not match"},
		{"user@registry.sim", "registry.sim/a", true, ""},
		{"https://registry.sim", "registry.sim/a", false, "scheme"},
	} {
		all, any := doctor.Provider{MatchImages: []string{tc.glob}}.Matches(tc.image)
		if any != tc.want || !strings.Contains(all[0].Reason, tc.why) {
			t.Errorf("%s on %s: got match %t with the reason %q, want match %t with %q in the reason", tc.glob, tc.image, any, all[0].Reason, tc.want, tc.why)
		}
	}
}

func TestNormalize(t *testing.T) {
	for image, want := range map[string]string{
		"nginx": "docker.io/library/nginx", "index.docker.io/x/y": "docker.io/x/y", "localhost:5000/app:v1": "localhost:5000/app",
		"reg.sim:5000": "docker.io/library/reg.sim", "[::1]:5000/a/b:v1": "[::1]:5000/a/b", "reg.sim/a:v1@sha256:" + strings.Repeat("0", 64): "reg.sim/a", "team/app": "docker.io/team/app",
		"reg_sim:5000/a": "", "reg.sim/A/b": "", "reg.sim./a": "", "": "", "https://x/y": "", "reg.sim/a@sha256:0": "",
	} {
		if got, err := doctor.Normalize(image); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q %v; want %q", image, got, err, want)
		}
	}
}

func TestLint(t *testing.T) {
	c, err := doctor.Read([]byte(`
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: bin/x
  apiVersion: credentialprovider.kubelet.k8s.io/v1beta1
  matchImages: [registry.sim/*]
  tokenAttributes: {serviceAccountTokenAudience: a, cacheType: serviceaccount}
- name: bin/x
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["user@a", A, "b?x=1"]
  defaultCacheDuration: "-1s"
  tokenAttributes:
    serviceAccountTokenAudience: ""
    cacheType: Token
    requireServiceAccount: false
    requiredServiceAccountAnnotationKeys: [a/b]
    optionalServiceAccountAnnotationKeys: [a/b, c d, A/B, A/B]
`))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(c.Lint(), "\n")
	for _, word := range []string{"file name", "v1beta1", "defaultCacheDuration", "wildcard in the path", "requireServiceAccount", "cacheType",
		"two providers", "0s or more", "serviceAccountTokenAudience is required", "requireServiceAccount: true", "both required and optional", `"c d"`, "A/B twice", "a user or a query", "capital letters"} {
		if !strings.Contains(got, word) {
			t.Errorf("the report does not contain %s:\n%s", word, got)
		}
	}
	for _, field := range []string{"unknown", "Providers", "apiversion"} {
		if _, err := doctor.Read([]byte("kind: CredentialProviderConfig\n" + field + ": null\n")); err == nil {
			t.Errorf("the unknown field %s caused no error", field)
		}
	}
}

// ReadAnswer returns the reason why a kubelet v1.36 refuses an answer. In the test cases, an empty
// reason means that the kubelet accepts the answer.
func TestReadAnswer(t *testing.T) {
	p := doctor.Provider{APIVersion: "credentialprovider.kubelet.k8s.io/v1"}
	const head = `{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Image",`
	const auth = `"auth":{"registry.sim:5000":{"username":"u","password":"p"}}}`
	for raw, want := range map[string]string{
		head + auth: "", head + `"cacheDuration":"5m",` + auth: "", head + strings.Replace(auth, "registry", "https://registry", 1): "",
		"":                         "not a CredentialProviderResponse",
		"log line\n" + head + auth: "not a CredentialProviderResponse",
		head + auth + "{}":         "more data",
		head + `"more":1,` + auth:  "unknown field",
		head + strings.Replace(auth, "auth", "Auth", 1):                         `unknown field "Auth"`,
		head + strings.Replace(auth, "password", "Password", 1):                 `unknown field "auth.registry.sim:5000.Password"`,
		head + `"cacheKeyType":"Image",` + auth:                                 `duplicate field "cacheKeyType"`,
		head + strings.Replace(auth, ":5000", ":5000/v2/", 1):                   "",
		head + strings.Replace(auth, "registry", "http://registry", 1):          "",
		head + strings.Replace(auth, ":5000", ":5000/v1/app", 1):                "",
		head + strings.Replace(auth, ":5000", ":5000/v1", 1):                    "the path",
		head + strings.Replace(auth, ":5000", ":5000/v2/app/", 1):               "the path",
		head + strings.Replace(auth, "registry.sim:5000", "index.docker.io", 1): "the port differs",
		head + `"cacheDuration":"1d",` + auth:                                   "not a duration",
		head + `"cacheDuration":0,` + auth:                                      "not a CredentialProviderResponse",
		strings.Replace(head, "/v1", "/v1beta1", 1) + auth:                      "must be a",
		strings.Replace(head, `"Image"`, `"image"`, 1) + auth:                   "cacheKeyType",
		head + `"auth":{}}`:                                      "no credentials",
		head + strings.Replace(auth, ":5000", "", 1):             "the port differs",
		head + strings.Replace(auth, ":5000", ":443", 1):         "the port differs",
		head + strings.Replace(auth, ":5000", ":5000/app:v1", 1): "the path",
		head + strings.Replace(auth, `"u"`, `""`, 1):             "user name",
	} {
		a, err := p.ReadAnswer([]byte(raw), "registry.sim:5000/app")
		if want == "" && (err != nil || len(a.Users) != 1) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %+v %v; want %q", raw, a, err, want)
		}
	}
	for _, key := range []string{"index.docker.io", "https://index.docker.io/v1/", "docker.io/library"} {
		a, err := p.ReadAnswer([]byte(head+strings.Replace(auth, "registry.sim:5000", key, 1)), "docker.io/library/app")
		if err != nil || len(a.Users) != 1 {
			t.Errorf("key %s for an image of Docker Hub: %+v %v", key, a, err)
		}
	}
}

// If a service account lacks a required annotation, the kubelet does not run
// the plugin. The kubelet passes only the required and the optional annotations
// to the plugin.
func TestAnnotations(t *testing.T) {
	p := doctor.Provider{TokenAttributes: &kubelet.ServiceAccountTokenAttributes{
		RequiredServiceAccountAnnotationKeys: []string{"a/role"}, OptionalServiceAccountAnnotationKeys: []string{"a/more"},
	}}
	if got := p.MissingAnnotation(map[string]string{"a/more": "x"}); got != "a/role" {
		t.Errorf("missing annotation: got %q, want a/role", got)
	}
	all := map[string]string{"a/role": "r", "a/more": "x", "else": "y"}
	if got := p.PassedAnnotations(all); p.MissingAnnotation(all) != "" || len(got) != 2 || got["a/role"] != "r" {
		t.Errorf("got the passed annotations %v and the missing annotation %q, want a/role=r, a/more and no missing annotation", got, p.MissingAnnotation(all))
	}
}
