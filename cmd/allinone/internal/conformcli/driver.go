package conformcli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/conform"
	"github.com/cloudsim-dev/allinone/conform/cloudsimdriver"
	"github.com/cloudsim-dev/allinone/conform/hclouddriver"
	"github.com/cloudsim-dev/allinone/conform/httpdriver"
	"github.com/cloudsim-dev/allinone/internal/providerid"
)

// These constants are values of the flag --driver, except driverExec, which is the prefix of a
// value. The text after this prefix is a shell command, which runs once for each call of the
// driver. Any other value of the flag is the URL of a driver.
const (
	driverCloudsim = "cloudsim"
	driverFake     = "fake"
	driverHcloud   = "hcloud"
	driverExec     = "exec:"
)

// dialectAWS is the value of the flag --dialect for AWS's CCM.
const dialectAWS = "aws"

// annotationPrefix is the prefix of the annotation keys with which Services configure this
// project's CCM.
const annotationPrefix = "cloudsim.dev/load-balancer-"

type driverFlags struct {
	cli.Connection
	driver, dialect, account, clusterCIDR string
}

func (f *driverFlags) addTo(cmd *cobra.Command) {
	f.ConnectionFlags(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.driver, "driver", driverCloudsim, "cloud of the CCM: cloudsim for the cloud at --cloud-url, hcloud for Hetzner Cloud (HCLOUD_TOKEN, HCLOUD_ENDPOINT, HCLOUD_NETWORK), fake for a cloud and a CCM in this process, the URL of a driver, or exec:COMMAND for a shell command that runs once for each call of the driver (conform/httpdriver/openapi.yaml)")
	fl.StringVar(&f.dialect, "dialect", "", "dialect through which the CCM uses the cloud at --cloud-url: aws for AWS's CCM with KubernetesClusterID = conform; empty if the CCM uses the cloud's own API")
	fl.StringVar(&f.account, "ccm-account", "ccm", "name of the service account or token with which the CCM calls cloudsim; faults affect only the calls of this caller, and the checks count only these calls")
	fl.StringVar(&f.clusterCIDR, "routes-cidr", "", "IPv4 range for pods (--cluster-cidr of the CCM); empty if the CCM creates no routes")
}

// check returns an error if the value of --driver or --dialect is invalid, or if the two flags
// conflict.
func (f *driverFlags) check() error {
	switch {
	case f.dialect != "" && f.driver != driverCloudsim:
		return cloudsim.Misuse(fmt.Errorf("--dialect: the flag needs --driver %s", driverCloudsim))
	case f.dialect != "" && f.dialect != dialectAWS:
		return cloudsim.Misuse(fmt.Errorf("--dialect: want %s, got %q", dialectAWS, f.dialect))
	case f.driver == driverCloudsim:
		return nil
	case f.driver == driverHcloud:
		if f.Getenv("HCLOUD_TOKEN") == "" {
			return cloudsim.Misuse(errors.New("--driver hcloud: the environment variable HCLOUD_TOKEN is not set"))
		}
		return nil
	case strings.HasPrefix(f.driver, driverExec):
		if _, err := httpdriver.NewExec(strings.TrimPrefix(f.driver, driverExec)); err != nil {
			return cloudsim.Misuse(fmt.Errorf("--driver: %w", err))
		}
		return nil
	}
	if _, err := httpdriver.New(f.driver); err != nil {
		return cloudsim.Misuse(fmt.Errorf("--driver: want %s, %s, %s, %sCOMMAND or the URL of a driver: %w", driverCloudsim, driverHcloud, driverFake, driverExec, err))
	}
	return nil
}

// openDriver returns the driver that the flag --driver names. The value of the flag must not be
// driverFake.
func (f *driverFlags) openDriver() (conform.Driver, error) {
	switch {
	case f.driver == driverCloudsim:
		cl, err := f.Client()
		if err != nil {
			return nil, err
		}
		d := &cloudsimdriver.Driver{Cloud: cl, Caller: f.account}
		if f.dialect == dialectAWS {
			d.Dialect = cloudsimdriver.AWS
			d.Claims.Routes, d.Claims.ClusterCIDR = f.clusterCIDR != "", f.clusterCIDR
			return d, nil
		}
		d.Claims = conform.Capabilities{
			Provider: providerid.Scheme, ProviderIDPrefix: providerid.Scheme + "://", Zones: true, Shutdown: true, LoadBalancers: true, SourceRanges: true, UDP: true,
			MixedProtocols: true, SessionAffinity: true, DualStack: true, LocalTraffic: true,
			InternalAnnotations: map[string]string{annotationPrefix + "scheme": "internal"},
			ProxyAnnotations:    map[string]string{annotationPrefix + "proxy-protocol": "v2"},
			SharedAnnotations:   map[string]string{annotationPrefix + "shared": "conform"},
			Routes:              f.clusterCIDR != "", ClusterCIDR: f.clusterCIDR,
		}
		return d, nil
	case f.driver == driverHcloud:
		return &hclouddriver.Driver{
			Client: hcloud.NewClient(hcloud.WithToken(f.Getenv("HCLOUD_TOKEN")), hcloud.WithEndpoint(cmp.Or(f.Getenv("HCLOUD_ENDPOINT"), hcloud.Endpoint)),
				hcloud.WithApplication("cloudconform", cli.Version())),
			Network: f.Getenv("HCLOUD_NETWORK"), ClusterCIDR: f.clusterCIDR,
		}, nil
	case strings.HasPrefix(f.driver, driverExec):
		return httpdriver.NewExec(strings.TrimPrefix(f.driver, driverExec))
	}
	return httpdriver.New(f.driver)
}
