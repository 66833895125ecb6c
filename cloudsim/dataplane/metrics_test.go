package dataplane_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cloudsim-dev/allinone/cloudsim/dataplane"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// metricSeries returns every series of a registry, with names such as "name{label=value}".
func metricSeries(t testing.TB, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			all[family.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return all
}

func sum(t testing.TB, reg *prometheus.Registry, name string) (n float64) {
	t.Helper()
	for s, v := range metricSeries(t, reg) {
		if strings.HasPrefix(s, name+"{") {
			n += v
		}
	}
	return n
}

// The metrics count the connections, bytes and failures of each load balancer and each target.
// After the deletion of a load balancer, its metrics disappear.
func TestMetrics(t *testing.T) {
	f := newFleet(t, 1, each(echo))
	probed := serve(t, f.servers[0].ip, 0, sayWord("ok"))
	f.lb.HealthCheck.Port = probed.port
	reg := prometheus.NewRegistry()
	stop := f.start(t, dataplane.Config{Registry: reg, DrainTimeout: -1})

	c := dial(t, f.address())
	c.checkEcho()
	if n := sum(t, reg, "cloudsim_lb_active_connections"); n != 1 {
		t.Errorf("got %v active connections, want 1", n)
	}
	c.Close()
	f.servers[0].close()
	if _, refused := ask(t, f.address()); !refused {
		t.Error("connection to a closed target was accepted")
	}
	probed.close()
	f.cloud.await(t, lbID, wantHealth("unhealthy"))
	if _, refused := ask(t, f.address()); !refused {
		t.Error("connection to an unhealthy target was accepted")
	}
	const target = "{instance=i-000001,ip=,listener=,load_balancer=lb-000001}"
	want := map[string]float64{
		"cloudsim_lb_connections_total" + target:                                                         1,
		"cloudsim_lb_active_connections" + target:                                                        0,
		"cloudsim_lb_dial_failures_total" + target:                                                       1,
		"cloudsim_lb_bytes_total{direction=in,instance=i-000001,ip=,listener=,load_balancer=lb-000001}":  5,
		"cloudsim_lb_bytes_total{direction=out,instance=i-000001,ip=,listener=,load_balancer=lb-000001}": 5,
		"cloudsim_lb_refused_connections_total{load_balancer=lb-000001,reason=dial_failed}":              1,
		"cloudsim_lb_refused_connections_total{load_balancer=lb-000001,reason=no_healthy_target}":        1,
	}
	eventually.Empty(t, func() string { return cmp.Diff(want, metricSeries(t, reg)) })

	f.lb.Targets = nil
	f.cloud.putLB(f.lb)
	eventually.Empty(t, func() string {
		for s := range metricSeries(t, reg) {
			if strings.Contains(s, "i-000001") {
				return s + " belongs to a removed target"
			}
		}
		return ""
	})
	f.cloud.deleteLB(lbID)
	eventually.Empty(t, func() string { return cmp.Diff(map[string]float64{}, metricSeries(t, reg)) })
	stop()
	runDataplane(t, newMemory(), dataplane.Config{Registry: reg})() // a second run may register the metrics again
}

// The metrics count the bytes of each direction separately.
func TestBytesByDirection(t *testing.T) {
	f := newFleet(t, 1, each(func(c *net.TCPConn) {
		if n, _ := io.ReadFull(c, make([]byte, 3)); n == 3 {
			_, _ = c.Write(make([]byte, 100_000))
		}
	}))
	reg := prometheus.NewRegistry()
	f.start(t, dataplane.Config{Registry: reg})
	c := dial(t, f.address())
	_, _ = c.Write([]byte("abc"))
	if n, err := io.Copy(io.Discard, c); n != 100_000 || err != nil {
		t.Fatal(n, err)
	}
	const target = ",instance=i-000001,ip=,listener=,load_balancer=lb-000001}"
	eventually.Empty(t, func() string {
		have := metricSeries(t, reg)
		return cmp.Diff([2]float64{3, 100_000}, [2]float64{
			have["cloudsim_lb_bytes_total{direction=in"+target], have["cloudsim_lb_bytes_total{direction=out"+target],
		})
	})
}
