package client_test

import (
	"errors"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func TestEveryRegistryVerb(t *testing.T) {
	c := cloudtest.Start(t, cloudtest.WithConfig(func(c *engine.Config) { c.Registry = "registry.sim" }))
	ctx := t.Context()
	r := must(c.CreateRepository(ctx, cloudsim.CreateRepository{Name: "team-a/web"}))(t)
	if second := must(c.CreateRepository(ctx, cloudsim.CreateRepository{Name: "team-a/web"}))(t); second.ID != r.ID {
		t.Errorf("repeated creation: got the new repository %+v, want the existing repository", second)
	}
	must(c.GetRepository(ctx, r.ID))(t)
	if l := must(c.ListRepositories(ctx, cloudsim.ListOptions{Name: "team-a/web"}))(t); len(l.Items) != 1 {
		t.Errorf("repositories with the name: got %+v, want 1", l.Items)
	}
	if cred := must(c.CreateRegistryCredential(ctx, cloudsim.CreateRegistryCredential{}))(t); cred.Registry != "registry.sim" || cred.TTLSeconds != 3600 || cred.Password == "" {
		t.Errorf("credential: got registry %s and %d s, want registry.sim, 3600 s and a password", cred.Registry, cred.TTLSeconds)
	}
	must(c.ListRegistryDecisions(ctx))(t)
	if err := c.DeleteRepository(ctx, r.ID); err != nil {
		t.Error(err)
	}

	must(c.CreateServiceAccount(ctx, cloudsim.CreateServiceAccount{Name: "puller"}))(t)
	spec := cloudsim.WorkloadTrustSpec{Issuer: "https://k8s", Audience: "a", Keys: `{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`, Namespace: "n", ServiceAccount: "s"}
	if _, err := c.CreateWorkloadTrust(ctx, cloudsim.CreateWorkloadTrust{Name: "t", Account: "puller", WorkloadTrustSpec: spec}); !errors.Is(err, cloudsim.Invalid) {
		t.Errorf("workload trust with a symmetric key: got error %v, want Invalid", err)
	}
	spec.Keys = `{"keys":[{"kty":"EC","crv":"P-256","kid":"1","x":"8-JwohDUgwNfDf8BrS4cu3Bw3dLeLWJDYP3jaOdSCgg","y":"7a9QpFUrdfMgQW6_CFcIDcz_PuQLkZx5UuyTpy2iANE"}]}`
	w := must(c.CreateWorkloadTrust(ctx, cloudsim.CreateWorkloadTrust{Name: "t", Account: "puller", WorkloadTrustSpec: spec}))(t)
	must(c.GetWorkloadTrust(ctx, w.ID))(t)
	must(c.ListWorkloadTrusts(ctx, cloudsim.ListOptions{}))(t)
	if err := c.DeleteWorkloadTrust(ctx, w.ID); err != nil {
		t.Error(err)
	}
}
