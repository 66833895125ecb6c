package ccm_test

import (
	"testing"

	"k8s.io/controller-manager/config"
	"k8s.io/controller-manager/pkg/leadermigration"
	migrationconfig "k8s.io/controller-manager/pkg/leadermigration/config"

	"github.com/cloudsim-dev/allinone/ccm"
)

// Upstream's default configuration for leader migration lists three controllers, two of them with
// outdated names. The configuration does not contain the current names of these two controllers, so
// the CCM would run them under its main Lease. An older kube-controller-manager uses another Lease,
// so it could run these controllers at the same time. The default configuration of this package
// migrates the controllers for load balancers, for routes and for the deletion of Nodes.
func TestLeaderMigrationNamesTheControllers(t *testing.T) {
	verdict := func(c *config.LeaderMigrationConfiguration, name string) leadermigration.FilterResult {
		return leadermigration.NewLeaderMigrator(c, "cloud-controller-manager").FilterFunc(name)
	}
	c := migrationconfig.DefaultLeaderMigrationConfiguration()
	if verdict(c, "service-lb-controller") == leadermigration.ControllerMigrated {
		t.Log("upstream's default now migrates the controller: completeMigration is no longer necessary")
	}
	ccm.Migrating(c)
	ccm.Migrating(c) // a second call changes nothing
	for name, want := range map[string]leadermigration.FilterResult{
		"service-lb-controller": leadermigration.ControllerMigrated, "node-route-controller": leadermigration.ControllerMigrated,
		"cloud-node-lifecycle-controller": leadermigration.ControllerMigrated, ccm.ServiceRepairController: leadermigration.ControllerMigrated,
		ccm.ServiceOrphanController: leadermigration.ControllerMigrated, ccm.ServiceEndpointController: leadermigration.ControllerMigrated, "cloud-node-controller": leadermigration.ControllerNonMigrated,
		ccm.CloudHealthController: leadermigration.ControllerNonMigrated,
	} {
		if got := verdict(c, name); got != want {
			t.Errorf("migration of the controller %s: got %v, want %v", name, got, want)
		}
	}
	if errs := migrationconfig.ValidateLeaderMigrationConfiguration(c); len(errs) > 0 {
		t.Errorf("upstream's validation returned %v", errs)
	}
	if len(c.ControllerLeaders) != 8 { // three names of upstream and five names of this package
		t.Errorf("controllers in the configuration: got %d, want 8: %+v", len(c.ControllerLeaders), c.ControllerLeaders)
	}
}
