package node_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/credprovider"
	"github.com/cloudsim-dev/allinone/credprovider/doctor"
	"github.com/cloudsim-dev/allinone/credprovider/node"
)

// The plugin can read its generated configuration. The linter in the package
// doctor finds no problems in the generated configuration of the kubelet.
func TestFiles(t *testing.T) {
	c := node.Config{
		Config: credprovider.Config{
			CloudURL: "http://cloud:8180", MetadataURL: client.DefaultMetadataURL, Registries: []string{"registry.sim:5000"}, OptInAnnotation: "cloudsim.dev/own",
		},
		Dir: "/etc/cloudsim", Audience: "registry.cloudsim",
		ECR: &node.ECR{URL: "http://cloud:8197", Hosts: []string{"000000000001.dkr.ecr.sim-1.amazonaws.com"}},
	}
	files, err := c.Files()
	if err != nil {
		t.Fatal(err)
	}
	if own, err := credprovider.ReadConfig(strings.NewReader(string(files[node.PluginFile]))); err != nil || own.OptInAnnotation != c.OptInAnnotation {
		t.Errorf("configuration of the plugin: got %+v, error %v; want the annotation %s", own, err, c.OptInAnnotation)
	}
	kubelet, err := doctor.Read(files[node.KubeletFile])
	if err != nil || len(kubelet.Lint()) > 0 {
		t.Errorf("configuration of the kubelet: got error %v and the problems %v, want none", err, kubelet.Lint())
	}
	p := kubelet.Providers[0]
	if p.Name != node.Plugin || p.Args[0] != "--config=/etc/cloudsim/credprovider.json" || p.TokenAttributes.OptionalServiceAccountAnnotationKeys[0] != c.OptInAnnotation {
		t.Errorf("provider of cloudsim in the kubelet's configuration: got %+v, want the name %s, --config=/etc/cloudsim/credprovider.json and the annotation %s", p, node.Plugin, c.OptInAnnotation)
	}
	ecr := kubelet.Providers[1]
	if ecr.Name != "ecr-credential-provider" || !slices.Equal(ecr.MatchImages, c.ECR.Hosts) || len(ecr.Env) != 1 || ecr.Env[0].Value != c.ECR.URL {
		t.Errorf("provider for ECR: got %+v, want the hosts %v and one variable with the URL %s", ecr, c.ECR.Hosts, c.ECR.URL)
	}
	c.Audience = ""
	if _, err := c.Files(); err == nil || !strings.Contains(err.Error(), "needs an audience") {
		t.Errorf(`opt-in annotation without an audience: got error %v, want "needs an audience"`, err)
	}
	c.OptInAnnotation, c.Optional = "", false
	files, err = c.Files()
	if _, roles := files[node.RBACFile]; err != nil || roles {
		t.Errorf("configuration without an audience: got error %v, RBAC file %t; want no error, false", err, roles)
	}
	c.Registries = nil
	if _, err := c.Files(); err == nil {
		t.Error("Files accepted a configuration without a registry")
	}
}
