package csi

import (
	"context"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/conform"
)

// controllers contains the paths of the gRPC services of a CSI controller. The driver's calls to
// the cloud get faults only during RPCs of these services. The forwarder counts calls only during
// these RPCs.
var controllers = []string{"/csi.v1.Controller/", "/csi.v1.GroupController/"}

const (
	// firstPause and maxPause are the shortest and the longest time between two attempts of an RPC.
	firstPause = 10 * time.Millisecond
	maxPause   = time.Second
)

// rawCodec is a codec that does not decode messages. The forwarder forwards the bytes of each
// message.
type rawCodec struct{}

// Marshal implements encoding.CodecV2.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("the message has the type %T, want *[]byte", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("the message has the type %T, want *[]byte", v)
	}
	*b = data.Materialize()
	return nil
}

// Name implements encoding.CodecV2.
func (rawCodec) Name() string { return "proto" }

// count contains two numbers for the RPCs of one name: the successful RPCs, and the calls to the
// cloud that these successful RPCs caused.
type count struct{ rpcs, calls int }

// forwarder forwards the RPCs of csi-sanity to the driver. If an RPC fails because of a fault, the
// forwarder repeats the RPC, as Kubernetes' sidecars do. The forwarder runs only one RPC of a
// controller service at a time (see the variable controllers), so that each call to the cloud
// belongs to one RPC.
type forwarder struct {
	driver  *driver
	faults  *faultSelector
	proxy   conform.Faults
	timeout time.Duration

	one sync.Mutex // held during an RPC of the services in controllers

	mu      sync.Mutex // protects the fields below
	counted map[string]count
	made    int   // calls to the cloud during all RPCs, including RPCs that fail
	err     error // the reason why the run cannot continue
}

// handle is a grpc.StreamHandler for all RPCs with one request and one answer.
func (f *forwarder) handle(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	var in []byte
	if err := stream.RecvMsg(&in); err != nil {
		return err
	}
	out, err := f.rpc(stream.Context(), method, in)
	if err != nil {
		return err
	}
	return stream.SendMsg(&out)
}

func (f *forwarder) invoke(ctx context.Context, method string, in []byte) (out []byte, err error) {
	err = f.driver.conn.Invoke(ctx, method, &in, &out, grpc.ForceCodecV2(rawCodec{}))
	return out, err
}

// rpc forwards an RPC. If the RPC fails because of a fault, rpc repeats the RPC. If a later attempt
// fails with a transient error, rpc makes another attempt. It returns all other errors at once.
func (f *forwarder) rpc(ctx context.Context, method string, in []byte) ([]byte, error) {
	service, name := path.Split(method)
	if !slices.Contains(controllers, service) {
		return f.invoke(ctx, method, in)
	}
	f.one.Lock()
	defer f.one.Unlock()
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if f.driver.process.Ended() != nil { // the driver ended after the last attempt; a cluster would also restart the driver
		if err := f.driver.startProcess(ctx); err != nil {
			return nil, f.fail(err)
		}
	}
	before := f.callCount(ctx)
	defer func() { f.add(f.callCount(ctx) - before) }()
	disturbed := false
	for attempt, pause := 1, firstPause; ; attempt++ {
		f.faults.begin(attempt)
		out, err := f.invoke(ctx, method, in)
		hit, killErr := f.faults.end(ctx)
		if hit && f.faults.mode == Crash && killErr == nil {
			killErr = f.driver.startProcess(ctx)
		}
		if killErr != nil {
			return nil, f.fail(killErr)
		}
		disturbed = disturbed || hit
		switch {
		case err == nil:
			f.countSuccess(name, f.callCount(ctx)-before)
			return out, nil
		case !hit && (!disturbed || !isTransient(err)):
			return nil, err
		}
		if sleepFor(ctx, pause) != nil {
			return nil, err
		}
		pause = min(2*pause, maxPause)
	}
}

// isTransient reports whether an error means that the same RPC can succeed later. For example, a
// driver may return a transient error while the cloud still finishes the work of an earlier,
// interrupted attempt.
func isTransient(err error) bool {
	return slices.Contains([]codes.Code{codes.Aborted, codes.Unavailable, codes.DeadlineExceeded}, status.Code(err))
}

func (f *forwarder) callCount(ctx context.Context) (n int) {
	all, _ := f.proxy.Calls(ctx) // the proxy in this process always answers
	for _, c := range all {
		n += c.Calls
	}
	return n
}

func (f *forwarder) add(calls int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made += calls
}

func (f *forwarder) countSuccess(name string, calls int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.counted[name]
	f.counted[name] = count{c.rpcs + 1, c.calls + calls}
}

// fail stores the reason why the run cannot continue.
func (f *forwarder) fail(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
	return status.Error(codes.Unavailable, err.Error())
}

func (f *forwarder) fatalError() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// unprovenReason returns a reason if the run could not test the driver in the mode m, for example
// because the driver made no call through the proxy. Otherwise it returns "".
func (f *forwarder) unprovenReason(m Mode) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case len(f.counted) == 0 && f.made == 0:
		return "no RPC of the controller succeeded: csi-sanity must use the endpoint in the environment variable CSI_ENDPOINT, and run the specs [Controller Server]"
	case f.made == 0:
		return "the driver made no call through the proxy: the driver must call its cloud at the URL in the environment variable CONFORM_API_URL"
	case m != Sanity && f.faults.disturbedCalls() == 0:
		return "no call of the driver was disturbed, because no RPC changed the cloud"
	}
	return ""
}

// callsPerRPC returns the average number of calls to the cloud per 100 successful RPCs, for each
// name of an RPC. It omits RPCs without calls.
func (f *forwarder) callsPerRPC() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := map[string]int{}
	for name, c := range f.counted {
		if c.calls > 0 {
			b["100 "+name] = (100*c.calls + c.rpcs/2) / c.rpcs
		}
	}
	return b
}
