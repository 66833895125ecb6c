package console

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/runtime"
)

// maxElements is the largest number of elements in a view.
const maxElements = 3000

func (p *page) elements(view string) {
	p.t.Helper()
	n, err := strconv.Atoi(p.eval("document.querySelectorAll('*').length"))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Logf("%s: %d elements", view, n)
	if n > maxElements {
		p.t.Errorf("%s: %d elements, want at most %d", view, n, maxElements)
	}
}

// Even with many objects, each view has at most maxElements elements. If the cloud has few
// instances, the map shows them as cards. If it has many instances, the map shows them as squares.
func TestElementLimit(t *testing.T) {
	c := startCloud(t, "--profile", "instant")
	var file strings.Builder
	file.WriteString("loadBalancers:\n")
	for i := range 12 {
		fmt.Fprintf(&file, "  - {name: lb-%d, region: sim-1, healthCheck: {protocol: tcp}, listeners: [{protocol: tcp, port: 80, targetPort: 30080}, {protocol: tcp, port: 81, targetPort: 30081}, {protocol: tcp, port: 82, targetPort: 30082}], targets: [", i)
		for n := range 10 {
			fmt.Fprintf(&file, "{instance: n-%d}, ", n+1)
		}
		file.WriteString("]}\n")
	}
	c.createInstances(120)
	c.apply(file.String())
	p := openPage(t, browser(t), c.link())
	p.card("n-120", "running")
	p.elements("map with cards")
	c.createInstances(400)
	p.awaitTrue("document.querySelector('canvas') !== null")
	p.awaitText("133 running")
	for _, view := range append(views, "resources/operation", "object/loadBalancer/"+c.idOf("loadBalancer", "lb-1")) {
		p.visit(view)
		if view == "resources/instance" || view == "events" {
			p.awaitTrue("document.querySelectorAll('tbody tr').length > 10")
		}
		p.elements(view)
	}
}

// With 5,000 instances and 100 changes per second, the page is usable and current. The memory of
// the page grows by at most 10 MiB, and 300 other viewers get the changes. The environment variable
// CONSOLE_SOAK sets the duration of the changes.
func TestManyInstances(t *testing.T) {
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("CONSOLE_SOAK"), "5s"))
	if err != nil {
		t.Fatalf("CONSOLE_SOAK: %v", err)
	}
	const instances = 5000
	c := startCloud(t, "--profile", "instant")
	c.createInstances(instances)
	p := openPage(t, browser(t), c.link())
	p.awaitTrue("document.querySelectorAll('canvas').length === 3")
	heap := func() float64 {
		command(p, heapprofiler.CollectGarbage, cdp.Empty{})
		return command(p, runtime.GetHeapUsage, cdp.Empty{}).UsedSize
	}
	change := func(d time.Duration) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		n := c.changeLabels(ctx, 100, instances)
		t.Logf("%d changes in %s", n, d)
		last := strings.Fields(c.runCommand("cloud", "events", "--last", "1", "--no-headers"))[0]
		p.awaitWithin(time.Second, "document.querySelector('footer').innerText.includes('revision "+last+"')")
	}
	change(5 * time.Second) // fills the lists of the page up to their maximum length
	before := heap()
	change(duration)
	if grown := heap() - before; grown > 10<<20 {
		t.Errorf("the memory of the page grew by %.1f MiB in %s, want at most 10", grown/(1<<20), duration)
	}
	for _, view := range []string{"map", "resources/instance", "events"} {
		p.visit(view)
		p.elements(view)
	}
	p.visit("resources/instance")
	p.eval("document.querySelector('input[aria-label=\"Filter rows\"]').focus()")
	p.sendKeys("n-4999")
	p.awaitWithin(time.Second, "document.querySelectorAll('tbody tr[aria-rowindex]').length === 1")

	lines, stop := c.openViewers(t, 300)
	defer stop()
	change(duration)
	c.until("each of 300 viewers has got many changes", func() bool { return slices.Min(loadAll(lines)) >= 5 })
	p.awaitTrue("document.querySelector('footer').innerText.includes('301 viewers')")
}

func loadAll(counters []atomic.Int64) []int64 {
	all := make([]int64, len(counters))
	for i := range counters {
		all[i] = counters[i].Load()
	}
	return all
}
