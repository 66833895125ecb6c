package real

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// serveEndpoints lets machines reach services on the host's loopback, such as the API server and
// the cloud. Machines call these services at the host's address in the VPC. serveEndpoints also
// starts the metadata service.
//
// serveEndpoints opens all listeners before it accepts the first connection. If it cannot open a
// listener, it closes the open listeners and returns the error.
func (r *router) serveEndpoints(ctx context.Context, work *errgroup.Group, s Services) (err error) {
	open := map[net.Listener]string{}
	defer func() {
		for l := range open {
			if err != nil {
				_ = l.Close()
			}
		}
	}()
	for port, target := range s.Endpoints {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(r.vpc.Host.String(), strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("endpoint in the VPC: %w", err)
		}
		open[l] = target
	}
	metadata, err := r.serveMetadata(ctx, s.Metadata)
	if err != nil {
		return err
	}
	work.Go(metadata)
	for l, target := range open {
		work.Go(func() error { return forward(ctx, l, target) })
	}
	return nil
}

// forward accepts connections on l and forwards them to the address target, until ctx ends. At the
// end of ctx, it also closes the open connections.
func forward(ctx context.Context, l net.Listener, target string) error {
	var open sync.WaitGroup
	defer open.Wait()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	retry := retryBackoff()
	for {
		client, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // for example, too many open files
			retry.Wait(ctx)
			continue
		}
		retry.Reset()
		open.Go(func() { carry(ctx, client, target) })
	}
}

// carry connects to the address target. Then it copies data between client and the new connection,
// in both directions.
func carry(ctx context.Context, client net.Conn, target string) {
	defer client.Close()
	server, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", target)
	if err != nil {
		return // the machine's client sees a closed connection and retries
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { _ = errors.Join(client.Close(), server.Close()) })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { copyOneWay(server, client) })
	both.Go(func() { copyOneWay(client, server) })
	both.Wait()
}

// copyOneWay copies data from src to dst. At the end of the data, it closes the write side of dst.
// After an error, it closes src and dst.
func copyOneWay(dst, src net.Conn) {
	_, err := io.Copy(dst, src)
	if c, ok := dst.(*net.TCPConn); ok && err == nil {
		_ = c.CloseWrite() // an error means that the connection is already closed
		return
	}
	_ = errors.Join(dst.Close(), src.Close())
}
