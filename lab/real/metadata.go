package real

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/cloudsim-dev/allinone/cloudsim/metadata"
)

// metadataAddress is the router's, besides its own. Machines reach it by their
// default route. It is here and not in each machine, because a reply with a hop
// limit of 1 reaches a machine from the router, and does not reach a pod: the
// machine would have to forward it.
var metadataAddress = netip.PrefixFrom(netip.MustParseAddrPort(metadata.Address).Addr(), 32)

// serveMetadata tells machines until ctx ends what the cloud knows of them. The
// address in the VPC that a machine calls from says which it is.
func (r *router) serveMetadata(ctx context.Context, cloud metadata.Cloud) (func() error, error) {
	l, err := r.vpc.listen(ctx, metadata.Address)
	if err != nil {
		return nil, fmt.Errorf("metadata service: %w", err)
	}
	return func() error {
		return metadata.Run(ctx, r.log.With("part", "metadata"), metadata.Config{Listener: l}, cloud)
	}, nil
}

// listen listens on an address of the router.
func (v *vpc) listen(ctx context.Context, address string) (l net.Listener, err error) {
	err = within(v.ns, func() error {
		l, err = metadata.Listen(ctx, address)
		return err
	})
	return l, err
}
