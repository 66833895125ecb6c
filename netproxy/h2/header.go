package h2

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Fields that are the transport's, and no metadata.
const (
	fieldMethod      = ":method"
	fieldScheme      = ":scheme"
	fieldPath        = ":path"
	fieldAuthority   = ":authority"
	fieldStatus      = ":status"
	fieldContentType = "content-type"
	fieldTE          = "te"
	fieldUserAgent   = "user-agent"
	fieldGRPCStatus  = "grpc-status"
	fieldGRPCMessage = "grpc-message"

	contentType = "application/grpc"
	binaryKey   = "-bin" // ends the keys of values that are no text
)

// headerBlock writes fields as HPACK does, whose table both ends keep: blocks
// must be sent in the order in which they were made.
type headerBlock struct {
	enc *hpack.Encoder
	buf bytes.Buffer
}

func (b *headerBlock) field(name, value string) {
	// A bytes.Buffer does not fail.
	_ = b.enc.WriteField(hpack.HeaderField{Name: name, Value: value})
}

func (b *headerBlock) metadata(md metadata.MD) {
	for key, values := range md {
		if reserved(key) {
			continue
		}
		for _, v := range values {
			if strings.HasSuffix(key, binaryKey) {
				v = base64.RawStdEncoding.EncodeToString([]byte(v))
			}
			b.field(key, v)
		}
	}
}

// answer is what a server says first.
func (b *headerBlock) answer(md metadata.MD) {
	b.field(fieldStatus, "200")
	b.field(fieldContentType, contentType)
	b.metadata(md)
}

func (b *headerBlock) status(s *status.Status) {
	b.field(fieldGRPCStatus, strconv.Itoa(int(s.Code())))
	if s.Message() != "" {
		b.field(fieldGRPCMessage, percent(s.Message()))
	}
}

// reserved reports whether a key of metadata may not be sent or is not shown.
func reserved(key string) bool {
	return strings.HasPrefix(key, ":") || strings.HasPrefix(key, "grpc-") ||
		slices.Contains([]string{fieldContentType, fieldTE, fieldUserAgent}, key)
}

// head is a block of fields that was read.
type head struct {
	fields []hpack.HeaderField
	cut    bool // it was longer than we take
}

func (h head) get(name string) string {
	for _, f := range h.fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

func (h head) metadata() (metadata.MD, error) {
	md := metadata.MD{}
	for _, f := range h.fields {
		if reserved(f.Name) {
			continue
		}
		v := f.Value
		if strings.HasSuffix(f.Name, binaryKey) {
			raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(v, "="))
			if err != nil {
				return nil, fmt.Errorf("metadata %s is not base64", f.Name)
			}
			v = string(raw)
		}
		md.Append(f.Name, v)
	}
	return md, nil
}

// status is what trailers say, or a first block that is all there is.
func (h head) status() *status.Status {
	if h.cut {
		return status.New(codes.ResourceExhausted, "the peer's header is too long")
	}
	code, err := strconv.ParseUint(h.get(fieldGRPCStatus), 10, 32)
	if err != nil {
		return status.Newf(codes.Unknown, "the peer ended the stream without a status of gRPC (HTTP status %q)", h.get(fieldStatus))
	}
	message := h.get(fieldGRPCMessage)
	if text, err := url.PathUnescape(message); err == nil {
		message = text
	}
	return status.New(codes.Code(code), message)
}

// percent is grpc-message's encoding: what is no visible ASCII, and the sign
// itself, as %XX.
func percent(text string) string {
	var out strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&out, "%%%02X", c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}

// statusOf is what a reset of the stream means (gRPC over HTTP/2, "HTTP2
// Transport Mapping").
func statusOf(code http2.ErrCode) *status.Status {
	switch code {
	case http2.ErrCodeCancel:
		return status.New(codes.Canceled, "the peer cancelled the stream")
	case http2.ErrCodeRefusedStream:
		return status.New(codes.Unavailable, "the peer refused the stream")
	case http2.ErrCodeEnhanceYourCalm:
		return status.New(codes.ResourceExhausted, "the peer asks for less")
	}
	return status.Newf(codes.Internal, "the peer reset the stream: %v", code)
}
