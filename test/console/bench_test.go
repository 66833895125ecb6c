package console

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
)

// measurements is the number of measurements of a benchmark. The benchmark reports the median
// of the measurements.
const measurements = 5

// The limits of the console.
const (
	maxFirstLoad  = 80_000                 // bytes of HTML, CSS and JavaScript, with gzip
	maxMoreUsable = time.Second            // maximum of this difference: time with 5,000 instances - 2 × time with 3 instances
	maxScreen50   = 150 * time.Millisecond // median of the time from the answer to a change until the screen shows the change
	maxScreen99   = 500 * time.Millisecond
	maxMainThread = 0.25 // share of a core
	minWrites     = 0.9  // writes per second with 300 viewers, relative to no viewer
)

func median[T int64 | float64 | time.Duration](all []T) T {
	slices.Sort(all)
	return all[len(all)/2]
}

func quantile(all []time.Duration, q float64) time.Duration {
	slices.Sort(all)
	return all[min(len(all)-1, int(q*float64(len(all))))]
}

// measureOnce skips the repetitions that Go adds to a benchmark. The benchmark itself makes a fixed
// number of measurements.
func measureOnce(b *testing.B) {
	b.Helper()
	if b.N > 1 {
		b.Skip("measures a fixed number of times: use -benchtime 1x")
	}
	b.ReportMetric(0, "ns/op") // hides the time of the whole benchmark
}

func withInstances(b *testing.B, n int) *cloud {
	b.Helper()
	c := startCloud(b, "--profile", "instant")
	c.createInstances(n)
	return c
}

// signedIn opens a tab that already has the administrator's token. The tab stores the time, in
// milliseconds, at which it first draws an element that matches selector.
func signedIn(b *testing.B, c *cloud, url, selector string) *page {
	b.Helper()
	p := openPage(b, browser(b), "about:blank")
	p.url = url
	secret := ""
	if c != nil {
		secret = c.secret()
	}
	command(p, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: `
		if (location.protocol === 'http:') sessionStorage.setItem('token', ` + quote(secret) + `);
		window.usable = 0;
		const look = () => {
			if (!document.querySelector(` + quote(selector) + `)) return requestAnimationFrame(look);
			requestAnimationFrame(() => (window.usable = performance.now()));
		};
		requestAnimationFrame(look);`})
	return p
}

// openURL opens the URL and returns the time until the page is usable.
func (p *page) openURL(url string) time.Duration {
	p.t.Helper()
	p.do(chromedp.Navigate("about:blank"))
	p.do(chromedp.Navigate(url))
	p.awaitTrue("window.usable > 0")
	ms, err := strconv.ParseFloat(p.eval("window.usable"), 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return time.Duration(ms * float64(time.Millisecond))
}

// The first load of the console transfers at most 80 KB.
func BenchmarkFirstLoad(b *testing.B) {
	measureOnce(b)
	c := startCloud(b)
	var bytes atomic.Int64
	p := openPage(b, browser(b), "about:blank")
	if err := chromedp.Listen(p.ctx, func(ev any) {
		if e, ok := ev.(*network.EventLoadingFinished); ok {
			bytes.Add(int64(e.EncodedDataLength))
		}
	}); err != nil {
		b.Fatal(err)
	}
	p.url = c.url
	p.do(chromedp.Navigate(c.url + "/console/"))
	p.awaitText("Sign in to the console")
	b.ReportMetric(float64(bytes.Load())/1000, "KB")
	if n := bytes.Load(); n > maxFirstLoad || n == 0 {
		b.Errorf("the first load has %d bytes, want at most %d", n, maxFirstLoad)
	}
}

// With 5,000 instances, the time until the page is usable is at most twice the time with 3
// instances, plus one second.
func BenchmarkUsable(b *testing.B) {
	measureOnce(b)
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<!doctype html><title>empty</title><p>empty")
	}))
	defer empty.Close()
	few, many := withInstances(b, 3), withInstances(b, 5000)
	pages := []struct {
		p   *page
		url string
	}{
		{signedIn(b, nil, empty.URL, "p"), empty.URL},
		{signedIn(b, few, few.url, "button.card"), few.url + "/console/"},
		{signedIn(b, many, many.url, "canvas"), many.url + "/console/"},
	}
	times := make([][]time.Duration, len(pages))
	for range measurements {
		for i, p := range pages {
			times[i] = append(times[i], p.p.openURL(p.url))
		}
	}
	none, small, big := median(times[0]), median(times[1]), median(times[2])
	for name, d := range map[string]time.Duration{"ms-empty-page": none, "ms-3": small, "ms-5000": big} {
		b.ReportMetric(float64(d.Microseconds())/1000, name)
	}
	if big > 2*small+maxMoreUsable {
		b.Errorf("usable with 5000 instances after %s, want at most twice %s and 1 s", big, small)
	}
}

// changeLabels changes labels of instances at the given rate per second until ctx ends, and returns
// the number of changes. It does not change the first instance.
func (c *cloud) changeLabels(ctx context.Context, rate, instances int) int64 {
	secret := c.secret()
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	var all sync.WaitGroup
	var done atomic.Int64
	due := make(chan int)
	for range 8 {
		all.Go(func() {
			for i := range due {
				path := fmt.Sprintf("/v1/instances/i-%06x", i)
				if change(ctx, hc, c.url+path, secret, fmt.Sprintf(`{"labels":{"n":"%d"}}`, time.Now().UnixNano())) == nil {
					done.Add(1)
				}
			}
		})
	}
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		select {
		case <-ctx.Done():
		case <-tick.C:
			select {
			case <-ctx.Done():
			case due <- 2 + i%(instances-1):
			}
		}
	}
	close(due)
	all.Wait()
	return done.Load()
}

func change(ctx context.Context, hc *http.Client, url, secret, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+secret)
	resp, err := hc.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

// underLoad calls fn while clients change 100 instances per second.
func (c *cloud) underLoad(instances int, fn func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { c.changeLabels(ctx, 100, instances) })
	fn()
	cancel()
	all.Wait()
}

// With 5,000 instances and 100 changes per second, the screen shows half of the changes within 150
// ms, and 99 % of the changes within 500 ms. The measured time begins when the cloud answers the
// call that makes the change.
func BenchmarkChangeToScreen(b *testing.B) {
	measureOnce(b)
	c := withInstances(b, 5000)
	p := signedIn(b, c, c.url, "tbody tr")
	p.openURL(c.url + "/console/#/resources/instance")
	p.awaitText("n-1")
	p.eval(`(window.seen = [], window.state = '', new MutationObserver(() => {
		const row = document.querySelector('tbody tr[aria-rowindex="2"]'), state = row?.cells[2].innerText;
		if (row?.cells[0].innerText !== 'n-1' || state === window.state) return;
		window.state = state;
		requestAnimationFrame(() => seen.push(state + ' ' + (performance.timeOrigin + performance.now())));
	}).observe(document.querySelector('.table'), { childList: true, characterData: true, subtree: true }), 0)`)
	var all []time.Duration
	c.underLoad(5000, func() {
		for n := range 100 {
			verb, state := "stop", "stopped"
			if n%2 == 1 {
				verb, state = "start", "running"
			}
			p.eval("(seen.length = 0, 0)")
			if status, body := c.call(http.MethodPost, "/v1/instances/i-000001/"+verb, c.secret(), ""); status >= 300 {
				b.Fatalf("%s: status %d: %s", verb, status, body)
			}
			answered := time.Now()
			p.awaitTrue("seen.some((s) => s.startsWith('" + state + "'))")
			ms, err := strconv.ParseFloat(p.eval("seen[0].split(' ')[1]"), 64) // the first change of the row
			if err != nil {
				b.Fatal(err)
			}
			all = append(all, max(0, time.Duration(ms*float64(time.Millisecond))-time.Duration(answered.UnixNano())))
		}
	})
	p50, p99 := quantile(all, .5), quantile(all, .99)
	b.ReportMetric(float64(p50.Milliseconds()), "ms-p50")
	b.ReportMetric(float64(p99.Milliseconds()), "ms-p99")
	if p50 > maxScreen50 || p99 > maxScreen99 {
		b.Errorf("time from a change to the screen: got p50 %s and p99 %s, want at most %s and %s", p50, p99, maxScreen50, maxScreen99)
	}
}

// busyShare observes the page's main thread for the duration d. It returns the fraction of this
// time in which the thread uses a processor. It measures processor time, because other programs do
// not affect processor time.
func (p *page) busyShare(d time.Duration) float64 {
	p.t.Helper()
	seconds := func() (v float64) {
		for _, m := range command(p, performance.GetMetrics, cdp.Empty{}).Metrics {
			if m.Name == "TaskDuration" {
				v = m.Value
			}
		}
		return v
	}
	command(p, performance.Enable, performance.EnableParams{TimeDomain: "threadTicks"})
	before, begin := seconds(), time.Now()
	time.Sleep(d) // the duration of the measurement
	return (seconds() - before) / time.Since(begin).Seconds()
}

// With 5,000 instances and 100 changes per second, the main thread works at most a quarter of the
// time.
func BenchmarkMainThread(b *testing.B) {
	measureOnce(b)
	c := withInstances(b, 5000)
	empty := openPage(b, browser(b), "about:blank")
	p := signedIn(b, c, c.url, "canvas")
	p.openURL(c.url + "/console/")
	c.underLoad(5000, func() {
		none := empty.busyShare(2 * time.Second)
		b.ReportMetric(100*none, "%-empty-page")
		for _, view := range []string{"map", "resources/instance", "events"} {
			p.visit(view)
			p.awaitTrue("document.querySelectorAll('canvas, tbody tr').length > 0")
			var all []float64
			for range measurements {
				all = append(all, p.busyShare(3*time.Second))
			}
			share := median(all)
			b.ReportMetric(100*share, "%-"+filepath.Base(view))
			if share > maxMainThread {
				b.Errorf("%s: the main thread works %.0f %% of the time, want at most %.0f %%", view, 100*share, 100*maxMainThread)
			}
		}
	})
}

// openViewers opens streams of the console and reads them until the caller calls stop. It
// counts the reads of each stream.
func (c *cloud) openViewers(b testing.TB, n int) (reads []atomic.Int64, stop func()) {
	b.Helper()
	secret := c.secret()
	ctx, cancel := context.WithCancel(context.Background())
	hc := &http.Client{Transport: &http.Transport{DisableCompression: true}} // does not decompress the streams, because viewers on other machines would decompress them there
	reads = make([]atomic.Int64, n)
	var all, begun sync.WaitGroup
	for i := range n {
		begun.Add(1)
		all.Go(func() {
			first := sync.OnceFunc(begun.Done)
			defer first()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/console/scene", nil)
			if err != nil {
				b.Error(err)
				return
			}
			req.Header.Set("Authorization", "Bearer "+secret)
			req.Header.Set("Accept-Encoding", "gzip")
			resp, err := hc.Do(req)
			if err != nil || resp.StatusCode != http.StatusOK {
				b.Errorf("scene: %v, %v", resp, err)
				return
			}
			defer resp.Body.Close()
			buf := make([]byte, 32<<10)
			for {
				n, err := resp.Body.Read(buf)
				if err != nil {
					if ctx.Err() == nil {
						b.Errorf("the stream of a viewer ended: %v", err)
					}
					return
				}
				if n > 0 {
					reads[i].Add(1)
					first()
				}
			}
		})
	}
	begun.Wait()
	return reads, func() { cancel(); all.Wait() }
}

// Clients try to make 100 changes per second. With 300 viewers, the cloud makes at most 10 % fewer
// changes than without viewers.
func BenchmarkViewers(b *testing.B) {
	measureOnce(b)
	c := withInstances(b, 5000)
	measure := func() float64 {
		const d = 5 * time.Second
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		return float64(c.changeLabels(ctx, 100, 5000)) / d.Seconds()
	}
	var alone, watched []float64
	for range measurements {
		alone = append(alone, measure())
		reads, stop := c.openViewers(b, 300)
		watched = append(watched, measure())
		if n := slices.Min(loadAll(reads)); n < 20 {
			b.Errorf("a viewer got %d lines in 5 s, want at least 20", n)
		}
		stop()
	}
	without, with := median(alone), median(watched)
	b.ReportMetric(without, "writes/s-alone")
	b.ReportMetric(with, "writes/s-300-viewers")
	b.ReportMetric(c.resident(b), "MiB-300-viewers")
	if with < minWrites*without {
		b.Errorf("%.0f writes per second with 300 viewers, want at least %.0f", with, minWrites*without)
	}
}

// resident returns the largest resident memory of the cloud's process in MiB. See VmHWM in
// proc_pid_status(5).
func (c *cloud) resident(b *testing.B) float64 {
	b.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.process.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kib / 1024
		}
	}
	b.Fatal("no VmHWM")
	return 0
}
