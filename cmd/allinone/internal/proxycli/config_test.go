package proxycli

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestShippedAgentManifest proves that the file deploy/proxy/agent.yaml has the same content as the
// manifest that 'allinone proxy config' writes.
func TestShippedAgentManifest(t *testing.T) {
	written, err := template.New("").Parse(proxyManifests)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := written.Execute(&b, &proxyConfigFlags{Image: "allinone", Hosts: []string{"kind-control-plane"}}); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile("../../../../deploy/proxy/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	object := func(raw []byte) (o any) {
		j, err := yaml.YAMLToJSONStrict(raw)
		if err == nil {
			err = json.Unmarshal(j, &o)
		}
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	if d := cmp.Diff(object(b.Bytes()), object(raw)); d != "" {
		t.Errorf("-proxy config +deploy/proxy:\n%s", d)
	}
}
