package doctor_test

import (
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/credprovider/doctor"
)

// What a kubelet v1.36 did with these, when it was asked.
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
		{"registry.sim/team", "registry.sim/team-evil/a", true, "letters"},
		{"registry.sim/team", "registry.sim/team/a", true, "matches"},
		{"registry.sim/team", "registry.sim/other", false, "path"},
		{"registry.sim/*", "registry.sim/x/a", false, "no patterns in paths"},
		{"registry.sim:*", "registry.sim:5000/a", false, "does not start"},
		{"[::1]:5000", "[::1]:5000/a", true, ""},
		{"[::1]", "[::1]/a", false, "IPv6"},
		{"REGISTRY.sim", "registry.sim/a", false, "capitals"},
		{"https://registry.sim", "registry.sim/a", false, "scheme"},
	} {
		all, any := doctor.Provider{MatchImages: []string{tc.glob}}.Matches(tc.image)
		if any != tc.want || !strings.Contains(all[0].Reason, tc.why) {
			t.Errorf("%s on %s: %v %q", tc.glob, tc.image, any, all[0].Reason)
		}
	}
}

func TestNormalize(t *testing.T) {
	for image, want := range map[string]string{
		"nginx": "docker.io/library/nginx", "index.docker.io/x/y": "docker.io/x/y", "localhost:5000/app:v1": "localhost:5000/app",
		"reg.sim:5000": "docker.io/library/reg.sim", "[::1]:5000/a/b:v1": "[::1]:5000/a/b", "reg.sim/a@sha256:0": "reg.sim/a", "team/app": "docker.io/team/app",
		"reg_sim:5000/a": "", "reg.sim/A/b": "", "reg.sim./a": "", "": "", "https://x/y": "",
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
`))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(c.Lint(), "\n")
	for _, word := range []string{"file name", "v1beta1", "defaultCacheDuration", "no patterns in paths", "requireServiceAccount", "cacheType"} {
		if !strings.Contains(got, word) {
			t.Errorf("it does not mind %s:\n%s", word, got)
		}
	}
	if _, err := doctor.Read([]byte("unknown: 1")); err == nil {
		t.Error("an unknown field is taken")
	}
}
