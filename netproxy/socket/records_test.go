package socket_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/cloudsim-dev/allinone/internal/cert"
	"github.com/cloudsim-dev/allinone/netproxy/socket"
)

type countingSocket struct {
	net.Conn
	writes atomic.Int64
}

func (c *countingSocket) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// speak returns the client's end and the server's end of a TLS connection that uses Records.
func speak(t *testing.T, a, b net.Conn) (client, server net.Conn) {
	t.Helper()
	pair, err := cert.Sign(&x509.Certificate{DNSNames: []string{"server"}}, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(pair.Cert)
	protos := []string{"h2"}
	cc := socket.Records(credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "server", NextProtos: protos}))
	sc := socket.Records(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair.TLS()}, NextProtos: protos}))
	var other sync.WaitGroup
	var serverErr error
	other.Go(func() { server, _, serverErr = sc.ServerHandshake(b) })
	client, _, err = cc.ClientHandshake(context.Background(), "server", a)
	other.Wait()
	if err := errors.Join(err, serverErr); err != nil {
		t.Fatal(err)
	}
	return client, server
}

// The peer receives all bytes in the order of the writes. For one write to the
// TLS connection, Records makes at most three writes to the socket.
func TestRecords(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	below := &countingSocket{Conn: a}
	b, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	client, server := speak(t, below, b)
	defer server.Close()
	var sent bytes.Buffer
	var got []byte
	var reading sync.WaitGroup
	reading.Go(func() { got, _ = io.ReadAll(server) }) // the test compares got below, so the error does not matter
	piece := make([]byte, 512<<10)
	for i, n := range []int{1, 200 << 10, 16 << 10, 16<<10 + 1, 3, 512 << 10, 64 << 10} { // Go's TLS makes the first records of a connection small
		_, _ = rand.Read(piece[:n]) // never fails
		before := below.writes.Load()
		if _, err := client.Write(piece[:n]); err != nil {
			t.Fatal(err)
		}
		if w := below.writes.Load() - before; w > 3 {
			t.Errorf("write %d of %d bytes: got %d writes to the socket, want at most 3", i, n, w)
		}
		sent.Write(piece[:n])
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	reading.Wait()
	if !bytes.Equal(got, sent.Bytes()) {
		t.Errorf("got %d bytes, want the %d sent bytes in their order", len(got), sent.Len())
	}
}

// If a write blocks because the peer does not read, Close does not wait for this
// write. After a failed write, the connection writes no more bytes. The failed
// write may have sent a part of a record, so the peer could not decode later
// bytes.
func TestRecordsStalled(t *testing.T) {
	much := make([]byte, 256<<10)
	t.Run("close", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			client, server := speak(t, a, b)
			defer server.Close()
			var writing sync.WaitGroup
			var err error
			writing.Go(func() { _, err = client.Write(much) })
			synctest.Wait()
			began := time.Now()
			_ = client.Close() // closes the socket during the write
			writing.Wait()
			if err == nil {
				t.Error("the interrupted write returned no error")
			}
			if took := time.Since(began); took > 0 {
				t.Errorf("Close took %s, want 0s", took)
			}
		})
	})
	t.Run("deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			client, server := speak(t, a, b)
			defer server.Close()
			defer client.Close()
			if err := client.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := client.Write(much); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("write without a reader: got %v, want a deadline error", err)
			}
			if err := client.SetWriteDeadline(time.Time{}); err != nil {
				t.Fatal(err)
			}
			for _, p := range [][]byte{much[:1], much} {
				if _, err := client.Write(p); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("later write of %d bytes: got %v, want the first error", len(p), err)
				}
			}
		})
	})
}
