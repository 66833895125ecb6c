package ccm_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	migrationconfig "k8s.io/controller-manager/pkg/leadermigration/config"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/cloudsim-dev/allinone/ccm"
)

const deployed = "../deploy/ccm"

// readManifest returns the objects of a manifest by kind and name, as JSON.
func readManifest(t *testing.T, path string) map[string][]byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for d := yamlreader.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw))); ; {
		doc, err := d.Read()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		j, err := yaml.YAMLToJSONStrict(doc)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		var head struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := json.Unmarshal(j, &head); err != nil {
			t.Fatal(err)
		}
		if head.Kind != "" {
			out[head.Kind+"/"+head.Metadata.Name] = j
		}
	}
}

func decodeObject[T any](t *testing.T, docs map[string][]byte, name string) (v T) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(docs[name]))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

// The folder deploy/ccm contains a ClusterRole for the CCM. `allinone up` creates a ClusterRole
// with the same rules in a lab. The tests of the lab therefore also test the rules in deploy/ccm.
func TestShippedRulesEqualLabRules(t *testing.T) {
	shipped, lab := readManifest(t, deployed+"/rbac.yaml"), readManifest(t, "../lab/rbac.yaml")
	const role = "ClusterRole/cloudsim:cloud-controller-manager"
	if d := cmp.Diff(decodeObject[rbacv1.ClusterRole](t, lab, role).Rules, decodeObject[rbacv1.ClusterRole](t, shipped, role).Rules); d != "" {
		t.Errorf("the shipped rules differ from the lab's rules (-lab +shipped):\n%s", d)
	}
}

func TestDeploymentManifest(t *testing.T) {
	d := decodeObject[appsv1.Deployment](t, readManifest(t, deployed+"/deployment.yaml"), "Deployment/cloud-controller-manager")
	c := d.Spec.Template.Spec.Containers[0]
	cmd := ccm.NewCommand(func(string) string { return "" }, io.Discard)
	raw, err := os.ReadFile(deployed + "/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	args := slices.Concat(c.Args, regexp.MustCompile(`--[a-z-]+`).FindAllString(string(raw), -1))
	for _, a := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		if strings.HasPrefix(a, "--") && cmd.Flags().Lookup(name) == nil && name != "allocate-node-cidrs" {
			t.Errorf("the CCM has no flag %s", a)
		}
	}
	if !d.Spec.Template.Spec.HostNetwork {
		t.Error("the pod is not in the host network, but no pod network exists before nodes are initialized")
	}
	if r := d.Spec.Strategy.RollingUpdate; r == nil || r.MaxSurge == nil || r.MaxSurge.IntValue() != 0 || r.MaxUnavailable == nil || r.MaxUnavailable.IntValue() != 1 {
		t.Errorf("the strategy is %+v, so an update waits forever if the cluster has only two nodes: an old pod uses the port of each node", d.Spec.Strategy)
	}
	for key, value := range map[string]string{
		"node.cloudprovider.kubernetes.io/uninitialized": "true", "node.kubernetes.io/not-ready": "",
		"node.kubernetes.io/network-unavailable": "", "node-role.kubernetes.io/control-plane": "",
	} {
		if !slices.ContainsFunc(d.Spec.Template.Spec.Tolerations, func(tol v1.Toleration) bool {
			return tol.ToleratesTaint(klog.Background(), &v1.Taint{Key: key, Value: value, Effect: v1.TaintEffectNoSchedule}, false)
		}) {
			t.Errorf("the pod does not tolerate %s, so it cannot start on a Node that it has to initialize", key)
		}
	}
}

func TestShippedConfigurations(t *testing.T) {
	cm := decodeObject[v1.ConfigMap](t, readManifest(t, deployed+"/config.yaml"), "ConfigMap/cloud-config")
	path := filepath.Join(t.TempDir(), "cloud.yaml")
	all := regexp.MustCompile(`(?m)^# `).ReplaceAllString(cm.Data["cloud.yaml"], "") // also test the options in comments
	if err := os.WriteFile(path, []byte(all), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := ccm.ReadConfig(path)
	if err != nil || c.URL == "" || c.TokenFile == "" || !c.DeleteOrphans {
		t.Errorf("parsed configuration: got %+v, error %v; want a URL, a token file and deleteOrphans", c, err)
	}
	lm := decodeObject[v1.ConfigMap](t, readManifest(t, deployed+"/leader-migration.yaml"), "ConfigMap/leader-migration")
	if err := os.WriteFile(path, []byte(lm.Data["leader-migration.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := migrationconfig.ReadLeaderMigrationConfiguration(path)
	if err != nil {
		t.Fatal(err)
	}
	if errs := migrationconfig.ValidateLeaderMigrationConfiguration(m); len(errs) > 0 {
		t.Error(errs)
	}
	n := len(m.ControllerLeaders)
	if ccm.Migrating(m); len(m.ControllerLeaders) != n {
		t.Errorf("the configuration lacks the leases %v", m.ControllerLeaders[n:])
	}
}
