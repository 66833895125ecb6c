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

// serveEndpoints lets machines reach services on the host's loopback, such as the API server
// and the cloud. Machines call these services at the host's address in the VPC. serveEndpoints
// also starts the metadata service. The kernel copies the data of each connection from socket
// to socket.
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
	for port, to := range s.Endpoints {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(r.vpc.Host.String(), strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("endpoint in the VPC: %w", err)
		}
		open[l] = to
	}
	metadata, err := r.serveMetadata(ctx, s.Metadata)
	if err != nil {
		return err
	}
	work.Go(metadata)
	for l, to := range open {
		work.Go(func() error { return forward(ctx, l, to) })
	}
	return nil
}

// forward accepts connections on l and forwards them to the target address, until ctx ends. At the
// end of ctx, it also closes the open connections.
func forward(ctx context.Context, l net.Listener, to string) error {
	var open sync.WaitGroup
	defer open.Wait()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	again := retryBackoff()
	for {
		from, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // for example, too many open files
			again.Wait(ctx)
			continue
		}
		again.Reset()
		open.Go(func() { carry(ctx, from, to) })
	}
}

// carry connects to the target and copies data in both directions.
func carry(ctx context.Context, from net.Conn, to string) {
	defer from.Close()
	behind, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", to)
	if err != nil {
		return // the machine's client sees a closed connection and retries
	}
	defer behind.Close()
	stop := context.AfterFunc(ctx, func() { _ = errors.Join(from.Close(), behind.Close()) })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { copyOneWay(behind, from) })
	both.Go(func() { copyOneWay(from, behind) })
	both.Wait()
}

// copyOneWay copies data between two connections in one direction. At the end of the data it
// closes the write side of the receiving connection. After an error it closes both connections.
func copyOneWay(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if c, ok := to.(*net.TCPConn); ok && err == nil {
		_ = c.CloseWrite() // an error means that the connection is already closed
		return
	}
	_ = errors.Join(to.Close(), from.Close())
}
