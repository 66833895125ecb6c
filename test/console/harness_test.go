// Package console tests the web console in a real Chromium, with a real cloud.
package console

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

//go:embed testdata/axe.min.js
var axe string

// timeout is the time limit of each wait for a condition.
const timeout = time.Minute

// slack is the factor for the time limits that these tests set for the console. The environment
// variable CONSOLE_SLACK sets this factor. A factor above 1 is for machines on which other programs
// use the processors at the same time.
var slack = 1

// chromium is the browser of all tests. Each test has its own profile in this browser.
var chromium context.Context

func TestMain(m *testing.M) {
	os.Exit(runBrowser(m))
}

func runBrowser(m *testing.M) int {
	// The user's environment can contain variables that select a lab. Programs in the tests must
	// not use this lab.
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "CLOUDSIM_") || name == "KUBECONFIG" {
			_ = os.Unsetenv(name)
		}
	}
	if s := os.Getenv("CONSOLE_SLACK"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			fmt.Fprintf(os.Stderr, "CONSOLE_SLACK is %q, want a number of at least 1\n", s)
			return 1
		}
		slack = n
	}
	path, err := exec.LookPath("chromium")
	if err != nil {
		fmt.Println("NOT RUN: the console's tests in a browser, because chromium is not installed")
		return 0
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		// Requests to hosts other than 127.0.0.1 fail.
		chromedp.ProxyServer("http://127.0.0.1:9"), chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	defer stop()
	var cancel context.CancelFunc
	chromium, cancel = chromedp.NewContext(ctx)
	defer cancel()
	if err := chromedp.Do(chromium, chromedp.Navigate("about:blank")); err != nil {
		fmt.Fprintln(os.Stderr, "chromium does not start:", err)
		return 1
	}
	return m.Run()
}

// cloud is a cloud that runs in a separate process.
type cloud struct {
	t         testing.TB
	bin, dir  string
	addr, url string
	args      []string
	process   *exec.Cmd
}

func allinone(t testing.TB) string {
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
	return bin
}

func freeAddress(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

func startCloud(t testing.TB, args ...string) *cloud {
	t.Helper()
	c := &cloud{t: t, bin: allinone(t), dir: t.TempDir(), addr: freeAddress(t), args: args}
	c.url = "http://" + c.addr
	c.startCloud()
	t.Cleanup(c.kill)
	return c
}

// startCloud starts the process and waits until the cloud is ready.
func (c *cloud) startCloud() {
	c.t.Helper()
	ready := filepath.Join(c.dir, "ready")
	_ = os.Remove(ready) // a killed process leaves this file
	args := append([]string{"cloudsim", "--data-dir", c.dir, "--listen", c.addr, "--ready-file", ready, "--no-data-plane"}, c.args...)
	c.process = exec.Command(c.bin, args...)
	log, err := os.OpenFile(filepath.Join(c.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	c.process.Stderr = log
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

// tryCLI runs a command of the cloud's CLI and returns its output.
func (c *cloud) tryCLI(args ...string) (string, error) {
	cmd := exec.Command(c.bin, args...)
	cmd.Env = append(os.Environ(), "CLOUDSIM_URL="+c.url, "CLOUDSIM_TOKEN_FILE="+filepath.Join(c.dir, "admin.token"))
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// runCommand runs a command of the cloud's CLI, which must succeed, and returns its output.
func (c *cloud) runCommand(args ...string) string {
	c.t.Helper()
	out, err := c.tryCLI(args...)
	if err != nil {
		c.t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

func (c *cloud) link(args ...string) string {
	c.t.Helper()
	return c.runCommand(append([]string{"console", "link"}, args...)...)
}

func (c *cloud) instance(name, zone string) {
	c.t.Helper()
	c.runCommand("cloud", "instances", "create", name, "--zone", zone, "--type", "small", "--wait")
}

// createInstances creates the instances "n-1" to "n-COUNT" that do not exist yet, and waits until
// they run. If the cloud has no instance, the function creates "n-1" first. So "n-1" gets the
// smallest id.
func (c *cloud) createInstances(count int) {
	c.t.Helper()
	secret := c.secret()
	exists := len(strings.Fields(c.runCommand("cloud", "instances", "list", "-o", "name")))
	create := func(i int) {
		body := fmt.Sprintf(`{"name":"n-%d","zone":"sim-1%c","type":"small"}`, i, 'a'+i%3)
		if status, answer := c.call(http.MethodPost, "/v1/instances", secret, body, "Cloud-Project", "default"); status >= 300 && status != http.StatusConflict {
			c.t.Errorf("%s: status %d: %s", body, status, answer)
		}
	}
	if exists == 0 {
		create(1)
	}
	var all sync.WaitGroup
	next := make(chan int)
	for range 16 { // the cloud commits concurrent writes together
		all.Go(func() {
			for i := range next {
				create(i)
			}
		})
	}
	for i := range count {
		next <- i + 1
	}
	close(next)
	all.Wait()
	c.until("all instances run", func() bool {
		return strings.Count(c.runCommand("cloud", "instances", "list", "--no-headers"), "running") >= count
	})
}

func (c *cloud) apply(text string) {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), "apply.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.runCommand("cloud", "apply", "-f", path)
}

// secret returns the token of the administrator.
func (c *cloud) secret() string {
	c.t.Helper()
	raw, err := os.ReadFile(filepath.Join(c.dir, "admin.token"))
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}

// call sends a request with a token and headers, and returns the status and the body.
func (c *cloud) call(method, path, secret, body string, headers ...string) (int, string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// browser returns a tab with a new profile, which shares nothing with other profiles.
func browser(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	return ctx
}

// page is a tab with the console.
type page struct {
	t   testing.TB
	ctx context.Context
	url string

	mu       sync.Mutex
	requests []string
}

// watchErrors is a script that collects the errors of a page, and the violations of the page's
// Content-Security-Policy.
const watchErrors = `window.reports = [];
addEventListener('error', (e) => reports.push(e.message));
addEventListener('unhandledrejection', (e) => reports.push(String(e.reason)));
addEventListener('securitypolicyviolation', (e) => reports.push('policy ' + e.violatedDirective + ' ' + e.blockedURI));`

// openPage opens a URL in the tab of ctx. If the URL contains a sign-in code, the function
// waits for the end of the sign-in, which loads the page a second time. At the end of the test, the
// function checks that the page has had no error and sent requests only to its own origin.
func openPage(t testing.TB, ctx context.Context, url string) *page {
	t.Helper()
	p := &page{t: t, ctx: ctx, url: url}
	if err := chromedp.Listen(ctx, func(ev any) {
		if r, ok := ev.(*network.EventRequestWillBeSent); ok {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.requests = append(p.requests, r.Request.URL)
		}
	}); err != nil {
		t.Fatal(err)
	}
	p.size(1440, 900)
	command(p, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: watchErrors})
	p.do(chromedp.Navigate(url))
	if strings.Contains(url, "#c=") {
		p.awaitTrue("document.querySelector('.frame, .problem') !== null")
	}
	t.Cleanup(p.check)
	return p
}

// command sends a command of the DevTools protocol.
func command[P, R any](p *page, c cdp.Command[P, R], params P) R {
	p.t.Helper()
	r, err := chromedp.Call(p.ctx, c, params)
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

// check runs at the end of a test. It fails the test if the page had errors, or sent requests to
// another origin.
func (p *page) check() {
	p.t.Helper()
	if p.t.Failed() || p.ctx.Err() != nil {
		return
	}
	if found := p.eval("window.reports?.join('\\n') ?? ''"); found != "" {
		p.t.Errorf("the browser reports: %s", found)
	}
	origin := strings.Join(strings.SplitAfterN(p.url, "/", 4)[:3], "")
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.requests {
		if !strings.HasPrefix(r, origin) && !strings.HasPrefix(r, "data:") && !strings.HasPrefix(r, "about:") {
			p.t.Errorf("the page sent a request to %s, which is another origin than %s", r, origin)
		}
	}
}

func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

func (p *page) size(width, height int64) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(width, height))
}

// media emulates features of the user's system, such as prefers-color-scheme.
func (p *page) media(nameAndValue ...string) {
	p.t.Helper()
	var all []*emulation.MediaFeature
	for i := 0; i < len(nameAndValue); i += 2 {
		all = append(all, &emulation.MediaFeature{Name: nameAndValue[i], Value: nameAndValue[i+1]})
	}
	command(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: all})
}

// loadingError matches the errors that Chromium returns while a tab loads another document.
var loadingError = regexp.MustCompile("navigated|context was destroyed|Cannot find context")

// eval returns the value of a JavaScript expression as text. If the tab is loading another
// document, eval waits until the document is loaded.
func (p *page) eval(expression string) string {
	p.t.Helper()
	for end := time.Now().Add(timeout); ; time.Sleep(20 * time.Millisecond) {
		v, err := chromedp.Run(p.ctx, chromedp.Evaluate[string]("String("+expression+")"))
		if err == nil {
			return v
		}
		if !loadingError.MatchString(err.Error()) || time.Now().After(end) {
			p.t.Fatalf("%s: %v", expression, err)
		}
	}
}

func (p *page) text() string { p.t.Helper(); return p.eval("document.body?.innerText") }

func (p *page) awaitTrue(expression string) {
	p.t.Helper()
	p.wait(timeout, expression)
}

// awaitWithin tests a time limit of the console. It waits until the JavaScript expression is true.
// If the expression is not true after the limit multiplied by the factor slack, the test fails.
func (p *page) awaitWithin(limit time.Duration, expression string) {
	p.t.Helper()
	p.wait(time.Duration(slack)*limit, expression)
}

func (p *page) wait(most time.Duration, expression string) {
	p.t.Helper()
	for end := time.Now().Add(most); p.eval(expression) != "true"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("waited %s for %s; the page shows:\n%s", most, expression, p.text())
		}
	}
}

// quote returns a text as a JavaScript string.
func quote(text string) string {
	raw, _ := json.Marshal(text) // a string always has a JSON form
	return string(raw)
}

func has(text string) string {
	return "(document.body?.innerText ?? '').toLowerCase().includes(" + quote(strings.ToLower(text)) + ")"
}

func (p *page) awaitText(text string) { p.t.Helper(); p.awaitTrue(has(text)) }

// button returns a JavaScript expression for the first enabled button or link with a label that
// begins with the given text.
func button(label string) string {
	return "[...document.querySelectorAll('button, a')].find((b) => (b.getAttribute('aria-label') || b.innerText).trim().startsWith(" + quote(label) + ") && !b.disabled && b.ariaDisabled !== 'true')"
}

// press waits for the element that button(label) selects, and clicks it.
func (p *page) press(label string) {
	p.t.Helper()
	p.awaitTrue("Boolean(" + button(label) + ")")
	p.eval(button(label) + ".click()")
}

// card waits until the map shows the given instance in the given state.
func (p *page) card(name, state string) {
	p.t.Helper()
	p.awaitTrue("[...document.querySelectorAll('button.card')].some((b) => b.innerText.startsWith(" + quote(name) + ") && b.innerText.includes(" + quote(state) + "))")
}

// visit opens a view, and waits until the browser has drawn the view.
func (p *page) visit(view string) {
	p.t.Helper()
	p.eval("(location.hash = '#/" + view + "', window.drawn = false, requestAnimationFrame(() => requestAnimationFrame(() => (window.drawn = true))))")
	p.awaitTrue("window.drawn && document.querySelector('main h1') !== null")
}

// views lists all views of the console for a cloud with the instance i-000003.
var views = []string{"map", "resources/instance", "object/instance/i-000003", "differences", "events", "faults", "time", "states"}
