package proxycli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/metadata"
	"github.com/cloudsim-dev/allinone/internal/backoff"
)

// pauseMetadata is the time between two requests while the metadata service does not answer.
const pauseMetadata = time.Second

// askMetadata reads the metadata of the instance that the agent runs on. If the user has not set
// the id or the zone of the agent, askMetadata takes the missing value from the metadata. It adds
// the instance's names, addresses and pod ranges to the identifiers of the agent. The metadata
// service may start later than the agent. Therefore askMetadata repeats the request until the
// service answers or ctx ends.
func (f *proxyAgentFlags) askMetadata(ctx context.Context, log *slog.Logger) error {
	m := client.NewMetadata(f.metadataURL)
	defer m.Close()
	var (
		d   metadata.Document
		was string
	)
	for {
		raw, err := m.Get(ctx, "/v1/instance")
		if err == nil {
			err = json.Unmarshal(raw, &d)
		}
		if err == nil {
			break
		}
		if ctx.Err() != nil || !errors.Is(err, cloudsim.Unavailable) {
			return fmt.Errorf("--agent-identifiers-from-metadata: %w", err)
		}
		if msg := err.Error(); msg != was {
			log.Warn("waiting for the metadata service", "err", err)
			was = msg
		}
		backoff.Sleep(ctx, pauseMetadata)
	}
	return f.identify(d)
}

func (f *proxyAgentFlags) identify(d metadata.Document) error {
	if f.agentID == "" && f.envID == "" {
		f.ID = string(d.ID)
	}
	f.Zone = cmp.Or(f.Zone, d.Zone)
	id := &f.Identifiers
	for _, name := range []string{d.Name, d.Hostname} {
		if name != "" && !slices.Contains(id.Host, name) {
			id.Host = append(id.Host, name)
		}
	}
	var errs []error
	for _, a := range d.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		switch {
		case a.Type == cloudsim.AddressHostname:
		case err != nil:
			errs = append(errs, fmt.Errorf("metadata service: addresses: %w", err))
		case ip.Is4():
			id.IPv4 = append(id.IPv4, ip)
		default:
			id.IPv6 = append(id.IPv6, ip)
		}
	}
	for _, text := range d.PodRanges {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("metadata service: podRanges: %w", err))
			continue
		}
		id.CIDR = append(id.CIDR, p.Masked())
	}
	return errors.Join(errs...)
}
