package real

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"

	"github.com/vishvananda/netns"

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
	done := make(chan struct{})
	go func() {
		defer close(done)
		// A socket stays in the namespace that it was made in; the thread
		// ends with this goroutine, because it is never unlocked.
		runtime.LockOSThread()
		if err = netns.Set(v.ns); err == nil {
			l, err = metadata.Listen(ctx, address)
		}
	}()
	<-done
	return l, err
}
