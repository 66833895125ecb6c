package csi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/conform"
	"github.com/cloudsim-dev/allinone/internal/backoff"
)

const (
	// reconnect is the time between two attempts to connect to the driver.
	reconnect = 5 * time.Millisecond
	// answer is the longest time for one answer of the driver. After this time, the method
	// driver.name checks whether the driver's process has ended. If the process still runs, the
	// method calls the driver again.
	answer = time.Second
)

// driver contains the process of the CSI driver and a connection to its socket. The connection also
// works after a restart of the process.
type driver struct {
	process *conform.Command
	socket  string // path of the socket
	timeout time.Duration
	conn    *grpc.ClientConn
	lists   bool // true if the driver implements ListVolumes
}

func newDriver(process *conform.Command, endpoint string, timeout time.Duration) (*driver, error) {
	d := &driver{process: process, socket: strings.TrimPrefix(endpoint, "unix://"), timeout: timeout}
	var err error
	d.conn, err = grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"), // csi-sanity uses the same authority, because some servers refuse the path of a socket as the authority
		grpc.WithContextDialer(d.dial),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: grpcbackoff.Config{BaseDelay: reconnect, Multiplier: 2, MaxDelay: 10 * reconnect}, MinConnectTimeout: timeout}),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	return d, err
}

// dial connects to the driver. It waits until the driver serves, because the run often restarts the
// driver.
func (d *driver) dial(ctx context.Context, _ string) (net.Conn, error) {
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", d.socket)
		if err == nil || sleepFor(ctx, reconnect) != nil {
			return conn, err
		}
	}
}

func (d *driver) close() error { return errors.Join(d.process.Kill(), d.conn.Close()) }

// startProcess starts the process. It returns when the driver answers.
func (d *driver) startProcess(ctx context.Context) error {
	// A killed driver leaves its socket, and some drivers do not replace an existing socket.
	if err := os.Remove(d.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := d.process.Start(ctx); err != nil {
		return fmt.Errorf("start the driver: %w", err)
	}
	_, err := d.name(ctx)
	return err
}

// name returns the driver's name. It waits until the driver answers, and returns an error if the
// process ends.
func (d *driver) name(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	for {
		name, err := d.ask(ctx)
		if err == nil {
			return name, nil
		}
		if ended := d.process.Ended(); ended != nil {
			return "", fmt.Errorf("the driver does not serve: %w", ended)
		}
		if !isTransient(err) || sleepFor(ctx, reconnect) != nil {
			return "", fmt.Errorf("the driver does not answer the RPC GetPluginInfo on unix://%s: %w; its output is in %s", d.socket, err, d.process.Log)
		}
	}
}

func (d *driver) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	info, err := csi.NewIdentityClient(d.conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
	return info.GetName(), err
}

// list returns the driver's volumes and snapshots. It omits the volumes or the snapshots if the
// driver cannot list them.
func (d *driver) list(ctx context.Context) (all []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	control := csi.NewControllerClient(d.conn)
	volumes := func(token string) (string, error) {
		page, err := control.ListVolumes(ctx, &csi.ListVolumesRequest{StartingToken: token})
		for _, e := range page.GetEntries() {
			all = append(all, "the volume "+e.GetVolume().GetVolumeId())
		}
		d.lists = err == nil
		return page.GetNextToken(), err
	}
	snapshots := func(token string) (string, error) {
		page, err := control.ListSnapshots(ctx, &csi.ListSnapshotsRequest{StartingToken: token})
		for _, e := range page.GetEntries() {
			all = append(all, "the snapshot "+e.GetSnapshot().GetSnapshotId())
		}
		return page.GetNextToken(), err
	}
	for _, page := range []func(string) (string, error){volumes, snapshots} {
		for token, first := "", true; first || token != ""; first = false {
			if token, err = page(token); status.Code(err) == codes.Unimplemented {
				break
			} else if err != nil {
				return nil, fmt.Errorf("list the volumes and snapshots of the driver: %w", err)
			}
		}
	}
	return all, nil
}

// sleepFor waits for a time. It returns an error if ctx ends first.
func sleepFor(ctx context.Context, d time.Duration) error {
	backoff.Sleep(ctx, d)
	return context.Cause(ctx)
}
