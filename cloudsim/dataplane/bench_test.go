package dataplane_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
)

// In one run, each benchmark does the same work alternately through a load
// balancer and without a load balancer. It reports the ratio of the two durations,
// because other load on the machine changes both durations but not the ratio.

// runAlternating measures b.N rounds of each of two functions. The first function connects through
// a load balancer, and the second function connects directly to a server. runAlternating first runs
// one round of each function without a measurement. It then divides the b.N rounds into slices, and
// switches to the other function after each slice. It returns the total time of each function.
func runAlternating(b *testing.B, slices int, balanced, direct func(rounds int)) (lb, straight time.Duration) {
	timed := func(do func(int), rounds int) time.Duration {
		begin := time.Now()
		do(rounds)
		return time.Since(begin)
	}
	balanced(1)
	direct(1)
	b.ResetTimer()
	for i := range slices {
		rounds := b.N*(i+1)/slices - b.N*i/slices
		lb += timed(balanced, rounds)
		b.StopTimer() // so that ns/op is the time through the load balancer
		straight += timed(direct, rounds)
		b.StartTimer()
	}
	return lb, straight
}

func both(f *fleet) (lb, direct string) {
	return f.address(), fmt.Sprintf("%s:%d", f.servers[0].ip, f.servers[0].port)
}

func open(b *testing.B, address string) net.Conn {
	b.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

// BenchmarkThroughput streams to a target. The metric throughput/direct is the throughput through
// the load balancer, divided by the throughput of a direct connection.
func BenchmarkThroughput(b *testing.B) {
	f := newFleet(b, 1, each(func(c *net.TCPConn) {
		size := make([]byte, 8)
		for { // reads a size and this many bytes, and then confirms with a byte
			if _, err := io.ReadFull(c, size); err != nil {
				return
			}
			n := int64(binary.BigEndian.Uint64(size))
			if _, err := io.CopyBuffer(onlyWriter{io.Discard}, io.LimitReader(c, n), make([]byte, 256<<10)); err != nil {
				return
			}
			if _, err := c.Write(size[:1]); err != nil {
				return
			}
		}
	}))
	f.start(b, dataplane.Config{})
	block := make([]byte, 256<<10)
	stream := func(address string) func(int) {
		c := open(b, address)
		return func(rounds int) {
			size := binary.BigEndian.AppendUint64(nil, uint64(rounds*len(block)))
			_, err := c.Write(size)
			for range rounds {
				if err == nil {
					_, err = c.Write(block)
				}
			}
			if err == nil {
				_, err = io.ReadFull(c, size[:1])
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	lb, direct := both(f)
	b.SetBytes(int64(len(block)))
	through, straight := runAlternating(b, 4, stream(lb), stream(direct))
	b.ReportMetric(float64(straight)/float64(through), "throughput/direct")
}

// onlyWriter hides the method ReadFrom of a writer. Without onlyWriter, io.CopyBuffer would call
// ReadFrom, which allocates its own buffer.
type onlyWriter struct{ io.Writer }

// BenchmarkLatency measures a round trip of 64 bytes on an open connection. The metric
// latency/direct is the time through the load balancer, divided by the time of a
// direct connection. This ratio is 2 if the load balancer adds as much time as a
// direct round trip takes.
func BenchmarkLatency(b *testing.B) {
	f := newFleet(b, 1, each(echo))
	f.start(b, dataplane.Config{})
	talk := func(address string) func(int) {
		c, message := open(b, address), make([]byte, 64)
		return func(rounds int) {
			for range rounds {
				if _, err := c.Write(message); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, message); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	lb, direct := both(f)
	through, straight := runAlternating(b, 4, talk(lb), talk(direct))
	b.ReportMetric(float64(through)/float64(straight), "latency/direct")
}

// BenchmarkConnections opens connections. On each connection, it makes one round trip and then
// closes the connection. The metric rate/direct is the rate of connections through the load
// balancer, divided by the rate of direct connections. This ratio is 0.5 if the load balancer adds
// as much time as a direct connection takes.
func BenchmarkConnections(b *testing.B) {
	f := newFleet(b, 1, each(echo))
	f.lb.HealthCheck.IntervalMillis = 2000
	f.start(b, dataplane.Config{})
	connect := func(address string) func(int) {
		message := make([]byte, 64)
		return func(rounds int) {
			for range rounds {
				c, err := net.Dial("tcp", address)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := c.Write(message); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, message); err != nil {
					b.Fatal(err)
				}
				c.Close()
			}
		}
	}
	lb, direct := both(f)
	through, straight := runAlternating(b, 4, connect(lb), connect(direct))
	b.ReportMetric(float64(b.N)/through.Seconds(), "conns/s")
	b.ReportMetric(float64(straight)/float64(through), "rate/direct")
}
