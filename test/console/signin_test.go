package console

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// A sign-in link contains a code and works only once. The page removes the code from its URL at
// once. The browser's history, the cloud's log and the audit trail contain neither the code nor the
// page's token. If a user opens the link again, the console refuses the link and shows advice.
func TestSignIn(t *testing.T) {
	c := startCloud(t, "--log-requests", "--verbose")
	link := c.link()
	_, code, _ := strings.Cut(link, "#c=")
	p := openPage(t, browser(t), link)
	p.awaitText("No instance yet")
	secret := p.eval("sessionStorage.getItem('token')")
	for _, hidden := range []string{code, secret} {
		if at := p.eval("location.href"); strings.Contains(at, hidden) {
			t.Errorf("the address %s contains a secret", at)
		}
		if all := p.eval("JSON.stringify(performance.getEntries()) + document.cookie + JSON.stringify(history.state)"); strings.Contains(all, hidden) {
			t.Error("the performance entries, the cookies or the history state contain a secret")
		}
		log, err := os.ReadFile(filepath.Join(c.dir, "log"))
		if err != nil || len(log) == 0 || strings.Contains(string(log), hidden) {
			t.Errorf("the log of the cloud is empty or contains a secret (error %v)", err)
		}
		if strings.Contains(c.runCommand("cloud", "audit", "-o", "json"), hidden) {
			t.Error("the audit contains a secret")
		}
		for _, r := range p.requests {
			if strings.Contains(strings.SplitN(r, "#", 2)[0], hidden) {
				t.Errorf("the request %s contains a secret", r)
			}
		}
	}

	again := openPage(t, browser(t), link)
	again.awaitText("allinone console open")
	again.awaitText("Sign in to the console")
}

// If a code is wrong, the console refuses the code and shows advice. If too many wrong codes arrive
// at the same time, the console answers 429.
func TestWrongCode(t *testing.T) {
	c := startCloud(t)
	p := openPage(t, browser(t), c.url+"/console/#c=wrong")
	p.awaitText("allinone console open")
	if at := p.eval("location.hash"); strings.Contains(at, "wrong") {
		t.Errorf("the address still has the code: %s", at)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for range 100 {
		all.Go(func() {
			status, _ := c.call(http.MethodPost, "/console/session", "", `{"code":"wrong"}`)
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
		})
	}
	all.Wait()
	if statuses[http.StatusTooManyRequests] == 0 || statuses[http.StatusUnauthorized]+statuses[http.StatusTooManyRequests] != 100 {
		t.Errorf("statuses of 100 wrong codes: %v, want 401 and 429", statuses)
	}
}

// A revoked token ends the session of an open page within 15 s.
func TestRevokedToken(t *testing.T) {
	c := startCloud(t)
	p := openPage(t, browser(t), c.link())
	p.awaitText("live")
	for line := range strings.Lines(c.runCommand("cloud", "tokens", "list", "--no-headers")) {
		if strings.Contains(line, "console-") {
			c.runCommand("cloud", "tokens", "delete", strings.Fields(line)[0])
		}
	}
	p.awaitWithin(15*time.Second, has("Your access has ended"))
	p.awaitText("Sign in to the console")
}

// After a sign-in with a read-only link, the console has no buttons that change the cloud. If the
// user sends write requests with the token of this sign-in, the cloud refuses the requests.
func TestReadOnly(t *testing.T) {
	c := startCloud(t)
	c.instance("node-1", "sim-1a")
	c.runCommand("cloud", "state", "save", "before")
	p := openPage(t, browser(t), c.link("--read-only", "--project", "default"))
	p.press("node-1")
	p.awaitText("Your token has no permission for these actions")
	for _, view := range views {
		p.visit(view)
		if n := p.eval("document.querySelectorAll('.actions button:not(.icon-button)').length"); n != "0" {
			t.Errorf("%s has %s buttons that change the cloud", view, n)
		}
	}
	secret := p.eval("sessionStorage.getItem('token')")
	before := c.runCommand("cloud", "events", "-o", "json")
	for _, w := range [][2]string{
		{"POST", "/v1/instances"}, {"POST", "/v1/instances/i-000001/stop"}, {"POST", "/v1/instances/i-000001/start"},
		{"POST", "/v1/instances/i-000001/reboot"}, {"POST", "/v1/instances/i-000001/crash"}, {"DELETE", "/v1/instances/i-000001"},
		{"POST", "/v1/disks"}, {"POST", "/v1/load-balancers"}, {"POST", "/v1/faults"}, {"POST", "/v1/holds"}, {"PUT", "/v1/clock"},
		{"POST", "/v1/clock/advance"}, {"POST", "/v1/states"}, {"POST", "/v1/states/before/load"}, {"DELETE", "/v1/states/before"},
		{"POST", "/v1/tokens"}, {"POST", "/v1/projects"}, {"POST", "/console/links"},
	} {
		if status, body := c.call(w[0], w[1], secret, "{}"); status != http.StatusForbidden {
			t.Errorf("%s %s as a viewer: status %d, want 403: %s", w[0], w[1], status, body)
		}
	}
	if after := c.runCommand("cloud", "events", "-o", "json"); after != before {
		t.Error("a call of the viewer changed the cloud")
	}
}

// TestForeignHostAndOrigin proves that a page of another site cannot use the console. The console
// refuses a request with a foreign Host or Origin header. The API refuses a request without a
// token. A browser does not let a page of another origin read the API's answers.
func TestForeignHostAndOrigin(t *testing.T) {
	c := startCloud(t)
	for _, path := range []string{"/console/", "/console/app.js", "/console/scene", "/console/session", "/console/links"} {
		method := http.MethodGet
		if path == "/console/session" || path == "/console/links" {
			method = http.MethodPost
		}
		if status, _ := c.call(method, path, c.secret(), "", "Host", "evil.example"); status != http.StatusMisdirectedRequest {
			t.Errorf("%s with a foreign Host: status %d, want 421", path, status)
		}
		if status, _ := c.call(method, path, c.secret(), "", "Origin", "http://evil.example"); status != http.StatusForbidden {
			t.Errorf("%s with a foreign Origin: status %d, want 403", path, status)
		}
	}
	if status, _ := c.call(http.MethodPost, "/console/session", "", `{"code":"x"}`, "Sec-Fetch-Site", "cross-site"); status != http.StatusForbidden {
		t.Errorf("session of another site: status %d, want 403", status)
	}
	for _, path := range []string{"/v1/instances", "/v1/watch"} {
		if status, _ := c.call(http.MethodGet, path, "", "", "Host", "evil.example", "Origin", "http://evil.example"); status != http.StatusUnauthorized {
			t.Errorf("%s without a token: status %d, want 401", path, status)
		}
	}
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer other.Close()
	p := &page{t: t, ctx: browser(t)}
	p.do(chromedp.Navigate(other.URL))
	p.eval(`(fetch(` + quote(c.url+"/v1/instances") + `, { headers: { Authorization: 'Bearer ' + ` + quote(c.secret()) + ` } }).then(() => window.answer = 'readable', (e) => window.answer = e.name), 0)`)
	p.awaitTrue("window.answer !== undefined")
	if got := p.eval("window.answer"); got != "TypeError" {
		t.Errorf("a page of another origin got %q from the API", got)
	}
}

// The browser sends no credential of the console to a server on another port of this machine. The
// pages of that server cannot read the token.
func TestOtherPortGetsNoCredential(t *testing.T) {
	c := startCloud(t)
	p := openPage(t, browser(t), c.link())
	p.awaitText("live")
	secret := p.eval("sessionStorage.getItem('token')")
	seen := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var all strings.Builder
		_ = r.Header.Write(&all)
		seen <- r.URL.String() + all.String()
	}))
	defer other.Close()
	tab, cancel := chromedp.NewContext(p.ctx)
	defer cancel()
	if err := chromedp.Do(tab, chromedp.Navigate(other.URL)); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{secret, "Cookie:", "Authorization:", "Referer:"} {
		if got := <-seen; strings.Contains(got, part) {
			t.Errorf("the other server got %s:\n%s", part, got)
		} else {
			seen <- got
		}
	}
	if stored, err := chromedp.Run(tab, chromedp.Evaluate[string]("JSON.stringify({...sessionStorage}) + JSON.stringify({...localStorage})")); err != nil || strings.Contains(stored, secret) {
		t.Errorf("the other origin can read the token (error %v)", err)
	}
}
