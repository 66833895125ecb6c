package csidriver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// TestEveryKindHasACode proves that every error kind of the cloud has a CSI
// code. It also proves that no final failure has the code Aborted, Unavailable
// or DeadlineExceeded, because callers conclude from these codes that the work
// may still run.
func TestEveryKindHasACode(t *testing.T) {
	for _, k := range cloudsim.Kinds() {
		code, ok := codeOf[k]
		if !ok {
			t.Errorf("%v has no code", k)
		}
		if got := status.Code(statusOf(fmt.Errorf("wrapped: %w", cloudsim.Errorf(k, "x")))); got != code {
			t.Errorf("code of %v: got %v, want %v", k, got, code)
		}
		mayRun := code == codes.Aborted || code == codes.Unavailable || code == codes.DeadlineExceeded
		if final := k == cloudsim.Invalid || k == cloudsim.NotFound || k == cloudsim.Exists || k == cloudsim.Exhausted || k == cloudsim.Conflict; mayRun && final {
			t.Errorf("code of the final failure %v: got %v, which means that the work may still run", k, code)
		}
	}
}

func TestStatusOf(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want codes.Code
	}{
		"status error":                     {status.Error(codes.Aborted, "x"), codes.Aborted},
		"status error joined with another": {errors.Join(status.Error(codes.Aborted, "x"), errors.New("y")), codes.Aborted},
		"deadline exceeded":                {fmt.Errorf("x: %w", context.DeadlineExceeded), codes.DeadlineExceeded},
		"context cancelled":                {context.Canceled, codes.Canceled},
		"invalid size":                     {cloudsim.InvalidField("sizeGiB", "is too much"), codes.OutOfRange},
		"invalid zone":                     {cloudsim.InvalidField("zone", "is none"), codes.InvalidArgument},
		"unclassified":                     {errors.New("x"), codes.Internal},
	} {
		if got := status.Code(statusOf(c.err)); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// TestPanicIsAnError proves that a panic of a call becomes an error and does
// not end the process.
func TestPanicIsAnError(t *testing.T) {
	resp, err := answer(slog.New(slog.DiscardHandler))(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/csi.v1.Controller/X"},
		func(context.Context, any) (any, error) { panic("boom") })
	if resp != nil || status.Code(err) != codes.Internal {
		t.Errorf("answer after a panic: got %v, error %v; want no answer and the code Internal", resp, err)
	}
}
