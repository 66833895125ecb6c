package console

import (
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// After a kill of the cloud, the page becomes gray within 3 s and shows the age of its data. After
// a restart of the cloud, the same page continues without a reload.
func TestKilledCloud(t *testing.T) {
	c := startCloud(t)
	c.instance("node-1", "sim-1a")
	p := openPage(t, browser(t), c.link())
	p.awaitText("node-1")
	p.eval("window.same = true")
	c.kill()
	p.awaitWithin(3*time.Second, has("disconnected, retrying"))
	p.awaitTrue("/data is [1-9]\\d* s old/.test(document.body.innerText)")
	p.awaitTrue("getComputedStyle(document.querySelector('main')).filter.includes('grayscale')")
	p.card("node-1", "running")
	c.startCloud()
	p.awaitText("live")
	p.awaitTrue("getComputedStyle(document.querySelector('main')).filter === 'none'")
	c.instance("node-2", "sim-1b")
	p.card("node-2", "running")
	p.awaitTrue("window.same === true && [...document.querySelectorAll('button.card')].filter((b) => b.innerText.startsWith('node-1')).length === 1")
}

// If the machine's network changes, for example by a new network device, the browser's requests can
// fail. The page repeats the failed requests for its files, for the sign-in and for the objects.
func TestInterruptedRequests(t *testing.T) {
	c := startCloud(t)
	ctx := browser(t)
	p := &page{t: t, ctx: ctx}
	var mu sync.Mutex
	requests := map[string]int{} // by path
	if err := chromedp.Listen(ctx, func(ev any) {
		if r, ok := ev.(*fetch.EventRequestPaused); ok {
			go func() { // the listener must not wait for an answer of the browser
				path, _, _ := strings.Cut(strings.TrimPrefix(r.Request.URL, c.url), "#")
				mu.Lock()
				requests[path]++
				n := requests[path]
				mu.Unlock()
				var err error
				if path != "/console/" && n <= 3 && n%2 == 1 { // the first and the third request of each file
					_, err = chromedp.Call(ctx, fetch.FailRequest, fetch.FailRequestParams{RequestID: r.RequestID, ErrorReason: network.ErrorReasonConnectionFailed})
				} else {
					_, err = chromedp.Call(ctx, fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: r.RequestID})
				}
				if err != nil && ctx.Err() == nil && !strings.Contains(err.Error(), "Invalid InterceptionId") { // the page has dropped the request
					t.Errorf("request %d of %s: %v", n, path, err)
				}
			}()
		}
	}); err != nil {
		t.Fatal(err)
	}
	command(p, fetch.Enable, fetch.EnableParams{})
	p = openPage(t, ctx, c.link("--read-only", "--project", "default"))
	p.awaitText("live")
	p.awaitText("No instance yet")
	mu.Lock()
	defer mu.Unlock()
	for _, path := range []string{"/console/app.js", "/console/store.js", "/console/console.css", "/console/vendor/htm-preact.js"} {
		if requests[path] < 4 {
			t.Errorf("%d requests of %s, want 4: a failed and a successful request before and after the sign-in", requests[path], path)
		}
	}
	for _, path := range []string{"/console/session", "/v1/whoami", "/console/scene"} {
		if requests[path] != 2 {
			t.Errorf("%d requests of %s, want a failed and a successful request", requests[path], path)
		}
	}
}

// A browser without a network shows old data in gray. If the user presses a button, the page shows
// why the action failed. When the network is back, the same page continues.
func TestOffline(t *testing.T) {
	c := startCloud(t, "--profile", "instant")
	c.instance("node-1", "sim-1a")
	p := openPage(t, browser(t), c.link())
	p.press("node-1")
	p.awaitText("instances.create")
	p.eval("window.same = true")
	// Chromium's emulation of an offline network refuses only new requests. The open stream would
	// continue, so setOffline also stops the cloud's process.
	setOffline := func(is bool, s syscall.Signal) {
		t.Helper()
		command(p, network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{
			MatchedNetworkConditions: []*network.Conditions{{Offline: is, DownloadThroughput: -1, UploadThroughput: -1}},
		})
		if err := c.process.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	setOffline(true, syscall.SIGSTOP)
	p.awaitWithin(10*time.Second, has("disconnected, retrying"))
	p.awaitTrue("getComputedStyle(document.querySelector('main')).filter.includes('grayscale')")
	p.card("node-1", "running")
	p.press("Stop")
	p.awaitText("The cloud did not answer")
	setOffline(false, syscall.SIGCONT)
	c.instance("node-2", "sim-1a")
	p.card("node-2", "running")
	p.awaitText("live")
	p.awaitTrue("window.same === true")
}

// TestCloudDown loads the page while the fault cloud-down is active. With this fault, most API
// calls fail, but the calls about faults still succeed. The page still shows the objects, and the
// user can delete the fault in the page's banner.
func TestCloudDown(t *testing.T) {
	c := startCloud(t)
	c.instance("node-1", "sim-1a")
	p := openPage(t, browser(t), c.link())
	p.awaitText("node-1")
	c.runCommand("cloud", "faults", "preset", "cloud-down")
	p.card("node-1", "running") // an open page still shows the objects
	p.do(chromedp.Reload())
	p.card("node-1", "running")
	p.awaitText("cloud-down")
	p.press("Remove")
	p.awaitText("Deleted cloud-down")
	c.instance("node-2", "sim-1a")
	p.card("node-2", "running")
}

// After a user loads a saved state, an open page shows the new state and a notice within 2 s. A
// page that opens later has no notice.
func TestLoadedState(t *testing.T) {
	c := startCloud(t, "--profile", "instant")
	c.instance("node-1", "sim-1a")
	c.runCommand("cloud", "state", "save", "before")
	c.instance("node-2", "sim-1a")
	p := openPage(t, browser(t), c.link())
	p.card("node-2", "running")
	for range 2 { // the second load also has a notice
		c.runCommand("cloud", "state", "load", "before")
		p.awaitWithin(2*time.Second, has("This page shows the new state"))
		p.awaitTrue("!" + has("node-2"))
		p.card("node-1", "running")
		p.press("Dismiss")
		p.awaitTrue("!" + has("This page shows the new state"))
	}
	late := openPage(t, browser(t), c.link())
	late.card("node-1", "running")
	if late.eval(has("This page shows the new state")) == "true" {
		t.Error("a page that opened after the load shows a notice")
	}
}

// If the journal no longer contains the next event of a console's watch, the console reads all
// objects again and shows a notice.
func TestCompactedJournal(t *testing.T) {
	c := startCloud(t, "--profile", "instant", "--journal-keep", "10")
	c.instance("node-1", "sim-1a")
	addr := freeAddress(t)
	own := exec.Command(c.bin, "console", "--listen", addr, "--cloud-url", c.url, "--token-file", filepath.Join(c.dir, "admin.token"))
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = own.Process.Kill(); _ = own.Wait() })
	var link string
	c.until("the console is up", func() bool {
		out, err := c.tryCLI("console", "link", "--console-url", "http://"+addr)
		link = out
		return err == nil
	})
	p := openPage(t, browser(t), link)
	p.card("node-1", "running")
	if err := own.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.kill() // so that the console needs a new watch
	c.startCloud()
	for range 10 {
		c.runCommand("cloud", "instances", "stop", "node-1", "--wait")
		c.runCommand("cloud", "instances", "start", "node-1", "--wait")
	}
	c.runCommand("cloud", "instances", "stop", "node-1", "--wait")
	if err := own.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.card("node-1", "stopped")
	p.awaitText("This page shows the new state")
}

// The browser freezes a tab. Then the cloud restarts and compacts its journal. When the browser
// wakes the tab up, the tab shows the present state.
func TestFrozenTab(t *testing.T) {
	c := startCloud(t, "--profile", "instant", "--journal-keep", "10")
	c.instance("node-1", "sim-1a")
	p := openPage(t, browser(t), c.link())
	p.card("node-1", "running")
	p.eval("window.same = true")
	command(p, cdppage.SetWebLifecycleState, cdppage.SetWebLifecycleStateParams{State: "frozen"})
	c.runCommand("cloud", "instances", "stop", "node-1", "--wait")
	c.kill()
	c.startCloud()
	for range 20 {
		c.runCommand("cloud", "instances", "start", "node-1", "--wait")
		c.runCommand("cloud", "instances", "stop", "node-1", "--wait")
	}
	c.instance("node-2", "sim-1b")
	command(p, cdppage.SetWebLifecycleState, cdppage.SetWebLifecycleStateParams{State: "active"})
	p.card("node-1", "stopped")
	p.card("node-2", "running")
	p.awaitTrue("window.same === true")
	p.awaitText("live")
}

// Ten tabs of one browser share one stream. After the tab that reads the stream is closed, another
// tab reads the stream within 2 s.
func TestTabsShareOneStream(t *testing.T) {
	c := startCloud(t, "--profile", "instant")
	ctx := browser(t)
	leader := openPage(t, ctx, c.link())
	leader.awaitText("live")
	var pages []*page
	for range 9 {
		tab, cancel := chromedp.NewContext(ctx)
		t.Cleanup(cancel)
		pages = append(pages, openPage(t, tab, c.url+"/console/"))
	}
	for _, p := range pages {
		p.awaitText("live")
		p.awaitTrue("document.querySelector('footer').innerText.includes('1 viewer')")
		for _, r := range p.requests {
			if strings.HasSuffix(r, "/console/scene") {
				t.Error("a tab that does not lead reads the stream")
			}
		}
	}
	leader.do(chromedp.Navigate("about:blank"))
	begin := time.Now()
	c.instance("node-1", "sim-1a")
	for _, p := range pages {
		p.awaitText("node-1")
	}
	t.Logf("the tabs were current %s after the leader had closed", time.Since(begin).Round(time.Millisecond))
	if took := time.Since(begin); took > time.Duration(slack)*2*time.Second {
		t.Errorf("the tabs were current %s after the leader had closed, want at most 2 s", took)
	}
	pages[0].awaitTrue("document.querySelector('footer').innerText.includes('1 viewer')")
}

// After an action of a user, the page of another user shows the action and the first user's name
// within 1 s.
func TestOtherUserSeesAction(t *testing.T) {
	c := startCloud(t, "--profile", "instant")
	c.instance("node-1", "sim-1a")
	teacher, learner := openPage(t, browser(t), c.link()), openPage(t, browser(t), c.link("--project", "default"))
	for _, p := range []*page{teacher, learner} {
		p.press("node-1")
		p.awaitText("instances.create")
		p.awaitTrue("document.querySelector('footer').innerText.includes('2 viewers')")
	}
	name := learner.eval("document.querySelector('header button').title")
	if !strings.Contains(name, "console-") {
		t.Fatalf("name of the signed-in user: got %q, want a name that contains console-", name)
	}
	learner.press("Stop")
	teacher.awaitWithin(time.Second, "[...document.querySelectorAll('button.card')].some((b) => b.innerText.startsWith('node-1') && b.innerText.includes('stopped'))")
	teacher.awaitWithin(time.Second, "document.querySelector('aside').innerText.includes("+quote(name)+")")
}

// After many changes, the footer shows the new revision of the cloud within 1 s.
func TestRevision(t *testing.T) {
	c := startCloud(t, "--profile", "instant")
	p := openPage(t, browser(t), c.link())
	p.awaitText("live")
	c.createInstances(50)
	last := strings.Fields(c.runCommand("cloud", "events", "--last", "1", "--no-headers"))[0]
	p.awaitWithin(time.Second, "document.querySelector('footer').innerText.includes('revision "+last+"')")
}
