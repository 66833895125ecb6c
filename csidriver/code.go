package csidriver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"runtime/debug"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// codeOf maps each kind of failure to a CSI error code. statusOf can also return DEADLINE_EXCEEDED
// and CANCELED. These two codes, and also ABORTED and UNAVAILABLE, mean that the work may still
// continue. The caller must then repeat or undo the call. All other codes are final: no work
// continues.
var codeOf = map[cloudsim.Kind]codes.Code{
	cloudsim.Internal:        codes.Internal,
	cloudsim.Invalid:         codes.InvalidArgument,
	cloudsim.Unauthenticated: codes.Unauthenticated,
	cloudsim.Denied:          codes.PermissionDenied,
	cloudsim.NotFound:        codes.NotFound,
	cloudsim.Exists:          codes.AlreadyExists,
	cloudsim.Conflict:        codes.FailedPrecondition,
	cloudsim.Stale:           codes.Aborted,
	cloudsim.Exhausted:       codes.ResourceExhausted,
	cloudsim.Unavailable:     codes.Unavailable, // also for a lost reply: the driver does not know whether the cloud executed the call
	cloudsim.Gone:            codes.Aborted,
}

// statusOf returns err as a gRPC status. If the cloud rejected only the size of
// a disk, the code is OUT_OF_RANGE.
func statusOf(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the call did not finish before its deadline: the work may still continue")
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "the caller cancelled the call: the work may still continue")
	}
	code := codeOf[cloudsim.KindOf(err)]
	if isThrottled(err) {
		code = codes.Unavailable // RESOURCE_EXHAUSTED would mean that a resource is used up
	}
	if onlyAbout(err, "sizeGiB") {
		code = codes.OutOfRange
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok && code == codes.Internal {
		return status.Errorf(code, "%s: %v", p.Op+" "+path.Base(p.Path), err)
	}
	return status.Error(code, err.Error())
}

// isThrottled reports whether the cloud refused the call because of a rate
// limit.
func isThrottled(err error) bool {
	e, ok := errors.AsType[*cloudsim.Error](err)
	return ok && e.Kind == cloudsim.Exhausted && e.RetryAfter > 0
}

// onlyAbout reports whether the cloud rejected one or more of the given fields
// of the request, and no other field.
func onlyAbout(err error, fields ...string) bool {
	e, ok := errors.AsType[*cloudsim.Error](err)
	return ok && e.Kind == cloudsim.Invalid && len(e.Fields) > 0 &&
		!slices.ContainsFunc(e.Fields, func(f cloudsim.FieldError) bool { return !slices.Contains(fields, f.Field) })
}

// answer returns the gRPC interceptor for all calls. The interceptor turns a
// panic into an error, gives each error a code, and logs the result. It does
// not log requests, because requests can contain secrets.
func answer(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (resp any, err error) {
		began := time.Now()
		defer func() {
			if p := recover(); p != nil {
				log.Error("a call panicked", "call", info.FullMethod, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				resp, err = nil, status.Error(codes.Internal, "the driver panicked during the call: see the driver's log")
			}
			attrs := []any{"call", path.Base(info.FullMethod), "volume", volumeOf(req), "took", time.Since(began)}
			if err == nil {
				log.Debug("call succeeded", attrs...)
				return
			}
			err = statusOf(err)
			resp = nil
			log.Warn("call failed", append(attrs, "code", status.Code(err), "error", status.Convert(err).Message())...)
		}()
		return handle(ctx, req)
	}
}

func volumeOf(req any) string {
	switch r := req.(type) {
	case interface{ GetVolumeId() string }:
		return r.GetVolumeId()
	case interface{ GetName() string }:
		return r.GetName()
	}
	return ""
}

// invalidArgument returns an INVALID_ARGUMENT error about a field of the
// request.
func invalidArgument(field, format string, args ...any) error {
	return cloudsim.InvalidField(field, fmt.Sprintf(format, args...))
}

// checkRequired returns an error for the first field without a value. The
// arguments are pairs: the name of a field, and the value of this field.
func checkRequired(nameAndValue ...string) error {
	for i := 0; i < len(nameAndValue); i += 2 {
		if nameAndValue[i+1] == "" { //nolint:gosec // the arguments are pairs
			return invalidArgument(nameAndValue[i], "is required")
		}
	}
	return nil
}
