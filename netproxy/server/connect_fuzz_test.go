package server

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// For any input, readConnect returns a request, a refusal with a status, or io.EOF. It never
// reads a byte after the blank line.
func FuzzConnect(f *testing.F) {
	for _, s := range []string{
		"CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n\x16\x03\x01", "CONNECT [::1]:1 HTTP/1.1\nHost: x\n\nrest",
		"\r\n\r\nCONNECT a:1 HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "CONNECT a:1 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
		"CONNECT a:1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "CONNECT", "\x00\r\n\r\n", "CONNECT a:1 HTTP/1.1\r\nX: " + strings.Repeat("x", 5000) + "\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(raw), 4<<10)
		req, err := readConnect(r)
		var no *refusal
		if err != nil {
			if !errors.As(err, &no) && !errors.Is(err, io.EOF) {
				t.Fatalf("got %v, want a refusal or io.EOF", err)
			}
			return
		}
		rest, err := io.ReadAll(r)
		if err != nil || !bytes.HasSuffix(raw, rest) {
			t.Fatalf("got the rest %q, %v; want the bytes after the request", rest, err)
		}
		head := raw[:len(raw)-len(rest)]
		if !bytes.HasSuffix(head, []byte("\n")) || req.Method != "CONNECT" {
			t.Fatalf("got the method %s from %q", req.Method, head)
		}
		if to, err := parseTarget("tcp", req.RequestURI); err == nil && (to.host == "" || !strings.Contains(to.address, ":")) {
			t.Fatalf("got the target %+v from %q", to, req.RequestURI)
		}
	})
}
