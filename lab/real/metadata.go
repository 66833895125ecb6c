package real

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/cloudsim-dev/allinone/cloudsim/metadata"
)

// metadataAddress is the metadata service's address, which the router has in addition to its own
// address. Machines reach the address through their default route. The service's replies have a hop
// limit of 1. So a reply reaches a machine, but does not reach a pod, because the machine cannot
// forward the reply.
var metadataAddress = netip.PrefixFrom(netip.MustParseAddrPort(metadata.Address).Addr(), 32)

// serveMetadata opens the listener of the metadata service. It returns a function that serves
// requests until ctx ends. The service identifies a machine by the source address of the
// request, which is the machine's address in the VPC.
func (r *router) serveMetadata(ctx context.Context, cloud metadata.Cloud) (func() error, error) {
	l, err := r.vpc.listenOn(ctx, metadata.Address)
	if err != nil {
		return nil, fmt.Errorf("metadata service: %w", err)
	}
	return func() error {
		return metadata.Run(ctx, r.log.With("part", "metadata"), metadata.Config{Listener: l}, cloud)
	}, nil
}

func (v *vpc) listenOn(ctx context.Context, address string) (l net.Listener, err error) {
	err = inNamespace(v.ns, func() error {
		l, err = metadata.Listen(ctx, address)
		return err
	})
	return l, err
}
