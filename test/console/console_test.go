// Package console tests the web console in a real Chromium, with a real cloud.
package console

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

//go:embed testdata/axe.min.js
var axe string

// timeout is the time after which a condition fails its test. Only a failed test waits for it.
const timeout = time.Minute

// cloud is a cloud in its own process.
type cloud struct {
	t         testing.TB
	bin, dir  string
	addr, url string
	process   *exec.Cmd
}

func startCloud(t testing.TB, more ...string) *cloud {
	t.Helper()
	bin := os.Getenv("ALLINONE")
	if bin == "" {
		bin = "../../bin/allinone"
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("%v: run 'make build' first, or set ALLINONE", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cloud{t: t, bin: bin, dir: t.TempDir(), addr: ln.Addr().String()}
	c.url = "http://" + c.addr
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	c.run(more...)
	t.Cleanup(c.kill)
	return c
}

// run starts the process and waits until the cloud serves.
func (c *cloud) run(more ...string) {
	c.t.Helper()
	ready := filepath.Join(c.dir, "ready")
	args := append([]string{"cloudsim", "--data-dir", c.dir, "--listen", c.addr, "--ready-file", ready, "--no-data-plane"}, more...)
	c.process = exec.Command(c.bin, args...)
	var log strings.Builder
	c.process.Stderr = &log
	if err := c.process.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.until("the cloud is up", func() bool { _, err := os.Stat(ready); return err == nil })
}

func (c *cloud) kill() {
	_ = c.process.Process.Kill()
	_ = c.process.Wait()
}

func (c *cloud) until(what string, ok func() bool) {
	c.t.Helper()
	for end := time.Now().Add(timeout); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("waited %s for: %s", timeout, what)
		}
	}
}

// do runs a command of the cloud's CLI and returns its output.
func (c *cloud) do(args ...string) string {
	c.t.Helper()
	cmd := exec.Command(c.bin, args...)
	cmd.Env = append(os.Environ(), "CLOUDSIM_URL="+c.url, "CLOUDSIM_TOKEN_FILE="+filepath.Join(c.dir, "admin.token"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (c *cloud) instance(name, zone string) {
	c.t.Helper()
	c.do("cloud", "instances", "create", name, "--zone", zone, "--type", "small", "--wait")
}

// browser starts Chromium. Its contexts are tabs.
func browser(t testing.TB) context.Context {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("chromium is not installed")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"), chromedp.NoSandbox,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	return ctx
}

// page is a tab with the console.
type page struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	requests []string
}

// open opens a URL in the tab of ctx.
func open(t testing.TB, ctx context.Context, url string) *page {
	t.Helper()
	p := &page{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, func(ev any) {
		if r, ok := ev.(*network.EventRequestWillBeSent); ok {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.requests = append(p.requests, r.Request.URL)
		}
	}); err != nil {
		t.Fatal(err)
	}
	p.do(chromedp.EmulateViewport(1440, 900))
	p.do(chromedp.Navigate(url))
	return p
}

func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// eval returns the value of a JavaScript expression as text.
func (p *page) eval(expression string) string {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[string]("String("+expression+")"))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

func (p *page) text() string { p.t.Helper(); return p.eval("document.body?.innerText") }

// until waits until the JavaScript expression is true.
func (p *page) until(expression string) {
	p.t.Helper()
	for end := time.Now().Add(timeout); p.eval(expression) != "true"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("waited %s for %s; the page shows:\n%s", timeout, expression, p.text())
		}
	}
}

// shows waits until the page contains a text.
func (p *page) shows(text string) {
	p.t.Helper()
	quoted, _ := json.Marshal(strings.ToLower(text))
	p.until("(document.body?.innerText ?? '').toLowerCase().includes(" + string(quoted) + ")")
}

// press clicks the first button or link with a label.
func (p *page) press(label string) {
	p.t.Helper()
	quoted, _ := json.Marshal(label)
	find := "[...document.querySelectorAll('button, a')].find((b) => (b.getAttribute('aria-label') || b.innerText).trim().startsWith(" + string(quoted) + ") && !b.disabled)"
	p.until("Boolean(" + find + ")")
	p.eval("(" + find + ").click()")
}

// card waits until the map shows an instance in a state.
func (p *page) card(name, state string) {
	p.t.Helper()
	p.until("[...document.querySelectorAll('button.card')].some((b) => b.innerText.startsWith('" + name + "') && b.innerText.includes('" + state + "'))")
}

func (p *page) visit(view string) {
	p.t.Helper()
	p.eval("location.hash = '#/" + view + "'")
}

// onlyAsks checks that all requests of the page went to the cloud.
func (p *page) onlyAsks(c *cloud) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.requests {
		if !strings.HasPrefix(r, c.url+"/") && !strings.HasPrefix(r, "data:") && !strings.HasPrefix(r, "about:") {
			p.t.Errorf("the page asked %s, which is another origin", r)
		}
	}
}

// A link signs in one browser. The page removes the code from the address at once. The second use of
// the link is refused with advice.
func TestSignIn(t *testing.T) {
	c := startCloud(t)
	link := c.do("console", "link")
	_, code, _ := strings.Cut(link, "#c=")
	ctx := browser(t)
	p := open(t, ctx, link)
	p.shows("No instance yet")
	if at := p.eval("location.href"); strings.Contains(at, code) {
		t.Errorf("the address %s has the code", at)
	}
	if all := p.eval("JSON.stringify(performance.getEntries()) + document.cookie"); strings.Contains(all, code) {
		t.Error("an entry of the browser has the code")
	}
	for _, r := range p.requests {
		if strings.Contains(strings.SplitN(r, "#", 2)[0], code) {
			t.Errorf("the request %s has the code", r)
		}
	}
	p.onlyAsks(c)

	p.eval("sessionStorage.clear()")
	p.do(chromedp.Navigate("about:blank"))
	p.do(chromedp.Navigate(link))
	p.shows("allinone console open")
	p.shows("Sign in to the console")
}

// A revoked token ends the session of an open page.
func TestRevokedToken(t *testing.T) {
	c := startCloud(t)
	p := open(t, browser(t), c.do("console", "link"))
	p.shows("live")
	for line := range strings.SplitSeq(c.do("cloud", "tokens", "list", "--no-headers"), "\n") {
		if f := strings.Fields(line); strings.Contains(line, "console-") {
			c.do("cloud", "tokens", "delete", f[0])
		}
	}
	p.shows("Sign in to the console")
}

// A link with --read-only shows no buttons that change the cloud, and the cloud refuses such a call.
func TestReadOnly(t *testing.T) {
	c := startCloud(t)
	c.instance("node-1", "sim-1a")
	p := open(t, browser(t), c.do("console", "link", "--read-only", "--project", "default"))
	p.press("node-1")
	p.shows("Your link can only read")
	status := "fetch('/v1/instances/i-000001/stop', {method: 'POST', headers: {Authorization: 'Bearer ' + sessionStorage.getItem('token')}}).then((r) => window.status_ = r.status)"
	p.eval("(" + status + ", 0)")
	p.until("window.status_ === 403")
}

// A stop from the map appears on the map, with its reason. The last action can be undone. The command
// beside the button is the command of the CLI.
func TestStopAnInstance(t *testing.T) {
	c := startCloud(t, "--profile", "instant")
	c.instance("node-1", "sim-1a")
	p := open(t, browser(t), c.do("console", "link"))
	p.press("node-1")
	p.shows("allinone cloud instances stop node-1")
	p.press("Stop")
	p.card("node-1", "stopped")
	p.shows("instances.stop")
	p.press("Undo")
	p.card("node-1", "running")
	c.do("cloud", "instances", "delete", "node-1")
	p.shows("No instance yet")
	p.visit("object/instance/i-000001")
	p.shows("This object does not exist now")
	p.shows("instances.delete")
}

// A fault is visible on each page and can be removed there. A frozen clock moves one operation at a
// step.
func TestFaultsAndClock(t *testing.T) {
	c := startCloud(t, "--profile", "realistic")
	c.instance("node-1", "sim-1a")
	p := open(t, browser(t), c.do("console", "link"))
	p.visit("faults")
	p.shows("lost-reply")
	p.eval("[...document.querySelectorAll('.preset')].find((e) => e.innerText.startsWith('lost-reply')).querySelector('button').click()")
	p.shows("Fault lost-reply is active")
	if got := c.do("cloud", "faults", "list"); !strings.Contains(got, "lost-reply") {
		t.Errorf("faults: %s", got)
	}
	p.visit("events")
	p.shows("Fault lost-reply is active")
	p.press("Remove")
	p.until("!document.body.innerText.includes('lost-reply is active')")

	p.visit("time")
	p.press("Freeze")
	p.shows("The cloud's clock is frozen")
	c.do("cloud", "instances", "stop", "node-1")
	p.shows("stop node-1")
	p.press("Step to the next work")
	p.shows("No operation waits")
	if got := c.do("cloud", "instances", "list"); !strings.Contains(got, "stopped") {
		t.Errorf("instances after the step: %s", got)
	}
}

// A killed cloud turns the page grey and shows the age of the data. After a restart the same page
// continues without a reload.
func TestKilledCloud(t *testing.T) {
	c := startCloud(t)
	c.instance("node-1", "sim-1a")
	p := open(t, browser(t), c.do("console", "link"))
	p.shows("node-1")
	p.eval("window.same = true")
	c.kill()
	p.shows("lost, trying again")
	p.shows("node-1")
	c.run()
	p.shows("live")
	c.instance("node-2", "sim-1b")
	p.shows("node-2")
	p.until("window.same === true && [...document.querySelectorAll('button.card')].filter((b) => b.innerText.startsWith('node-1')).length === 1")
}

// A hostile text is shown as text.
func TestHostileText(t *testing.T) {
	c := startCloud(t)
	c.do("cloud", "instances", "create", "node-1", "--zone", "sim-1a", "--type", "small", "--label", "x=<img src=x onerror=window.owned=1>", "--wait")
	p := open(t, browser(t), c.do("console", "link"))
	p.visit("object/instance/i-000001")
	p.shows("<img src=x onerror=window.owned=1>")
	if p.eval("window.owned") != "undefined" || p.eval("document.images.length") != "0" {
		t.Error("the text of a label became a part of the page")
	}
}

// Ten tabs are live with one stream. After the first tab has closed, another tab reads the stream.
func TestTenTabs(t *testing.T) {
	c := startCloud(t)
	ctx := browser(t)
	first := open(t, ctx, c.do("console", "link"))
	first.shows("live")
	leader, closeLeader := chromedp.NewContext(ctx)
	pages := []*page{open(t, leader, c.url+"/console/")}
	for range 8 {
		tab, cancel := chromedp.NewContext(ctx)
		t.Cleanup(cancel)
		pages = append(pages, open(t, tab, c.url+"/console/"))
	}
	for _, p := range pages {
		p.shows("live")
		p.until("document.querySelector('footer').innerText.includes('1 viewer')")
	}
	first.do(chromedp.Navigate("about:blank"))
	c.instance("node-1", "sim-1a")
	closeLeader()
	c.instance("node-2", "sim-1a")
	for _, p := range pages[1:] {
		p.shows("node-2")
	}
}

// With 5,000 rows the table has few elements.
func TestManyInstances(t *testing.T) {
	if testing.Short() {
		t.Skip("creates 2000 instances")
	}
	c := startCloud(t, "--profile", "instant")
	var file strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&file, "%s\n  - name: n-%d\n    zone: sim-1a\n    type: small", map[bool]string{true: "instances:"}[i == 0], i)
	}
	path := filepath.Join(t.TempDir(), "many.yaml")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	c.do("cloud", "apply", "-f", path)
	p := open(t, browser(t), c.do("console", "link"))
	p.shows("2000 running")
	for _, view := range []string{"map", "resources/instance", "events"} {
		p.visit(view)
		p.until("document.querySelectorAll('canvas, tbody tr').length > 0")
		if n := p.eval("document.querySelectorAll('*').length"); len(n) > 4 || len(n) == 4 && n > "3000" {
			t.Errorf("%s: %s elements, want at most 3000", view, n)
		}
	}
}

// axe-core finds no violation of WCAG 2.2 AA in any view: light and dark, wide and 320 pixels.
// With CONSOLE_SCREENSHOTS, the test also writes pictures into this folder.
func TestAccessibility(t *testing.T) {
	c := startCloud(t, "--profile", "instant")
	for i, zone := range []string{"sim-1a", "sim-1b", "sim-1a", "sim-1c"} {
		c.instance(fmt.Sprintf("node-%d", i+1), zone)
	}
	c.do("cloud", "instances", "stop", "node-3", "--wait")
	c.do("cloud", "faults", "preset", "zone-dark", "--zone", "sim-1c")
	c.do("cloud", "state", "save", "before")
	p := open(t, browser(t), c.do("console", "link"))
	p.press("node-3")
	p.shows("instances.stop")
	for _, scheme := range []string{"light", "dark"} {
		p.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
			return err
		}))
		for _, width := range []int64{1440, 320} {
			p.do(chromedp.EmulateViewport(width, 900))
			for _, view := range []string{"map", "resources/instance", "object/instance/i-000003", "differences", "events", "faults", "time", "states"} {
				p.visit(view)
				p.until("document.querySelector('main h1') !== null")
				p.axe(fmt.Sprintf("%s, %s, %d px", view, scheme, width))
				if wide := p.eval("document.documentElement.scrollWidth > innerWidth"); wide == "true" {
					t.Errorf("%s is wider than %d px", view, width)
				}
				p.screenshot(fmt.Sprintf("%s-%s-%d", strings.ReplaceAll(view, "/", "-"), scheme, width))
			}
		}
	}
	p.onlyAsks(c)
}

// axe checks the present view.
func (p *page) axe(view string) {
	p.t.Helper()
	p.eval("(typeof axe === 'undefined' && (() => {" + axe + "\n})(), 0)")
	p.eval(`(window.found = null, axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']}).then((r) => window.found = r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.html.slice(0, 160) + ' ' + n.failureSummary.slice(0, 200)).join(' | '))), 0)`)
	p.until("window.found !== null")
	if found := p.eval("window.found.join('\\n')"); found != "" {
		p.t.Errorf("%s: %s", view, found)
	}
}

func (p *page) screenshot(name string) {
	p.t.Helper()
	dir := os.Getenv("CONSOLE_SCREENSHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}
