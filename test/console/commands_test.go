package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// After a user stops an instance on the map, the map shows the call that stopped the instance. The
// user can undo the last action. The page of a deleted object contains the time and the reason of
// the deletion.
func TestStopAnInstance(t *testing.T) {
	c := startCloud(t, "--profile", "instant")
	c.instance("node-1", "sim-1a")
	p := openPage(t, browser(t), c.link())
	p.press("node-1")
	p.awaitText("allinone cloud instances stop node-1")
	p.press("Stop")
	p.card("node-1", "stopped")
	p.awaitText("instances.stop")
	p.press("Undo")
	p.card("node-1", "running")
	c.runCommand("cloud", "instances", "delete", "node-1")
	p.awaitText("No instance yet")
	p.visit("object/instance/i-000001")
	p.awaitText("This object does not exist now")
	p.awaitText("instances.delete")
}

// While a fault is active, each page shows the fault. The user can remove the fault and undo the
// removal. If a user steps the frozen clock once, exactly one operation ends.
func TestFaultsAndClock(t *testing.T) {
	c := startCloud(t, "--profile", "instant")
	c.runCommand("cloud", "durations", "set", "instance", "stop", "1m") // on the clock of the cloud
	c.instance("node-1", "sim-1a")
	c.instance("node-2", "sim-1a")
	p := openPage(t, browser(t), c.link())
	p.visit("faults")
	p.pressIn(".preset", "lost-reply", "Switch on")
	p.awaitText("Fault lost-reply is active")
	if got := c.runCommand("cloud", "faults", "list"); !strings.Contains(got, "lost-reply") {
		t.Errorf("faults: %s", got)
	}
	for _, view := range []string{"map", "resources/instance", "object/instance/i-000001", "differences", "events", "time", "states"} {
		p.visit(view)
		p.awaitText("Fault lost-reply is active")
	}
	p.press("Remove")
	p.awaitTrue("!" + has("lost-reply is active"))
	p.press("Undo")
	p.awaitText("Fault lost-reply is active")
	p.press("Remove")
	p.awaitTrue("!" + has("lost-reply is active"))

	p.visit("time")
	p.press("Freeze")
	p.awaitText("The cloud's clock is frozen")
	c.runCommand("cloud", "instances", "stop", "node-1")
	c.runCommand("cloud", "clock", "advance", "1.000999999s") // so that the operations are not due at the same time, or at the same fraction of a millisecond
	c.runCommand("cloud", "instances", "stop", "node-2")
	p.awaitText("stop node-1")
	p.awaitText("stop node-2")
	p.press("Step to the next operation")
	p.awaitTrue("!" + has("stop node-1"))
	if got := c.runCommand("cloud", "instances", "list", "--no-headers"); strings.Count(got, "stopped") != 1 || strings.Count(got, "stopping") != 1 {
		t.Errorf("instances after one step: %s", got)
	}
	p.press("Step to the next operation")
	p.awaitText("No operation waits")
	p.press("Resume")
	p.awaitTrue("!" + has("The cloud's clock is frozen"))
}

// buttonIn returns a JavaScript expression. The expression finds an enabled button with the given
// label, in an element that matches the CSS selector and contains the text.
func buttonIn(selector, text, label string) string {
	return fmt.Sprintf("[...document.querySelectorAll(%s)].filter((e) => e.innerText.includes(%s)).flatMap((e) => [...e.querySelectorAll('button')]).find((b) => b.innerText.trim() === %s && !b.disabled && b.ariaDisabled !== 'true')",
		quote(selector), quote(text), quote(label))
}

func (p *page) pressIn(selector, text, label string) {
	p.t.Helper()
	b := buttonIn(selector, text, label)
	p.awaitTrue("Boolean(" + b + ")")
	p.eval(b + ".click()")
}

// lists is a list of API paths. These paths return all objects that a button can change.
var lists = []string{
	"instances", "disks", "load-balancers", "snapshots", "networks", "subnets", "routes", "addresses", "faults", "holds", "operations", "states", "clock",
}

// content returns the objects at the given API paths as text, without times and counters.
func (c *cloud) content(lists ...string) string {
	c.t.Helper()
	all := map[string]any{}
	for _, path := range lists {
		status, body := c.call(http.MethodGet, "/v1/"+path, c.secret(), "")
		var v any
		if err := json.Unmarshal([]byte(body), &v); err != nil || status != http.StatusOK {
			c.t.Fatalf("%s: status %d: %s", path, status, body)
		}
		all[path] = withoutRunValues(v)
	}
	raw, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		c.t.Fatal(err)
	}
	return string(raw)
}

// withoutRunValues removes times, counters and other JSON members that can differ between two
// clouds even if both clouds got the same calls.
func withoutRunValues(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			switch {
			case strings.HasSuffix(k, "At"), k == "now", k == "aheadSeconds", k == "nextDue", k == "seen", k == "hits", k == "revision", k == "bytes", k == "requestId", k == "caller", k == "skipped", k == "detail":
				delete(v, k)
			default:
				v[k] = withoutRunValues(e)
			}
		}
	case []any:
		for i := range v {
			v[i] = withoutRunValues(v[i])
		}
	}
	return v
}

// The command that a button shows has the same effect as the button. The test presses a button in
// the console of one cloud, runs the command of this button for another cloud, and compares the two
// clouds.
func TestCommands(t *testing.T) {
	flags := []string{"--seed", "7", "--frozen-at", "2030-01-01T00:00:00Z", "--profile", "instant"}
	a, b := startCloud(t, flags...), startCloud(t, flags...)
	link := filepath.Join(t.TempDir(), "allinone") // the name of the program in the shown commands
	if err := os.Symlink(a.bin, link); err != nil {
		t.Fatal(err)
	}
	both := func(commands ...string) {
		t.Helper()
		for _, line := range commands {
			a.runCommand(strings.Fields(line)...)
			b.runCommand(strings.Fields(line)...)
		}
	}
	p := openPage(t, browser(t), a.link())
	p.awaitText("No instance yet")

	type step struct {
		before         []string // commands for both clouds
		view, in, text string   // the place of the button
		button         string
		confirm        string // name to type
		wait           string // text that the page shows afterward
	}
	object := func(kind, name, button, confirm, wait string, before ...string) step {
		return step{before, "object/" + kind + "/" + name, "main", "", button, confirm, wait}
	}
	steps := []step{
		{nil, "map", ".form", "", "Create", "", "Created node-1"},
		object("instance", "node-1", "Reboot", "", "Reboot: node-1"),
		object("instance", "node-1", "Crash", "", "Crash: node-1"),
		object("instance", "node-1", "Stop", "", "Stop: node-1", "cloud instances reboot node-1 --wait"),
		object("instance", "node-1", "Start", "", "Start: node-1"),
		object("disk", "data", "Detach from node-1", "", "Detached data", "cloud disks create data --zone sim-1a --size 1 --wait", "cloud disks attach data node-1 --wait"),
		object("snapshot", "copy", "Delete…", "copy", "Deleted copy", "cloud snapshots create copy --disk data --wait"),
		object("disk", "data", "Delete…", "data", "Deleted data"),
		object("subnet", "other-a", "Delete…", "other-a", "Deleted other-a", "cloud networks create other --ipv4 10.10.0.0/16 --wait", "cloud subnets create other-a --network other --zone sim-1a --ipv4 10.10.1.0/24 --wait"),
		object("network", "other", "Delete…", "other", "Deleted other"),
		object("route", "office", "Delete…", "office", "Deleted office", "cloud routes create office --destination 192.168.0.0/16 --next-hop node-1 --wait"),
		object("loadBalancer", "shop", "Delete…", "shop", "Deleted shop", "cloud load-balancers create shop --listener 80:30080 --wait"),
		object("address", "ip-1", "Delete…", "ip-1", "Deleted ip-1", "cloud addresses create ip-1"),
		{nil, "time", ".form", "Verb", "Hold", "", "New operations wait: stop of kind instance"},
		object("operation", "running", "Release", "", "Released op-", "cloud instances stop node-1"),
		object("operation", "running", "Cancel", "", "Cancelled op-", "cloud durations set instance start 5s", "cloud instances start node-1"),
		{nil, "time", "article", "hold-instance-stop", "Remove", "", "Deleted hold-instance-stop"},
		{nil, "time", "section", "", "+1 s", "", "moved +1 s"},
		{nil, "time", "section", "", "+1 min", "", "moved +1 min"},
		{nil, "time", "section", "", "+1 h", "", "moved +1 h"},
		{[]string{"cloud instances start node-1"}, "time", "section", "", "Step to the next operation", "", "One step"},
		{nil, "states", ".form", "", "Save", "", "Saved before-the-test"},
		{[]string{"cloud instances delete node-1 --wait"}, "states", "article", "before-the-test", "Compare with now", "", "Compared with before-the-test"},
		{nil, "states", "article", "before-the-test", "Load…", "before-the-test", "Loaded before-the-test"},
		{nil, "states", "article", "before-the-test", "Delete…", "before-the-test", "Deleted before-the-test"},
		object("instance", "node-1", "Delete…", "node-1", "Deleted node-1"),
		{[]string{"cloud faults preset lost-reply"}, "faults", "article", "lost-reply", "Remove", "", "Deleted lost-reply"},
		{nil, "time", "section", "", "×60", "", "60 times faster"},
		{nil, "time", "section", "", "Freeze", "", "The clock is frozen"},
		{nil, "time", "section", "", "Resume", "", "The clock runs"},
		{nil, "time", "section", "", "Real time", "", "follows the machine"},
	}
	var presets struct{ Items []struct{ Name string } }
	if _, body := a.call(http.MethodGet, "/v1/faults/presets", a.secret(), ""); json.Unmarshal([]byte(body), &presets) != nil || len(presets.Items) < 5 {
		t.Fatalf("presets: %s", body)
	}
	for _, preset := range presets.Items {
		steps = append(steps, step{nil, "faults", ".preset", preset.Name, "Switch on", "", preset.Name + " is on"})
	}
	for _, s := range steps {
		t.Run(strings.ReplaceAll(s.view, "/", " ")+" "+s.text+" "+s.button, func(t *testing.T) {
			p.t, a.t, b.t = t, t, t
			both(s.before...)
			view := s.view
			if parts := strings.Split(view, "/"); parts[0] == "object" {
				view = "object/" + parts[1] + "/" + a.idOf(parts[1], parts[2])
			}
			p.visit(view)
			button := buttonIn(s.in, s.text, s.button)
			p.awaitTrue("Boolean(" + button + ")")
			p.eval(button + ".focus()")
			shown := "(" + button + ").closest('.actions').querySelector('.cmd code').innerText"
			var line string
			a.until("the page shows the command of the button", func() bool {
				line = p.eval(shown)
				return line != "" && (s.button != "Step to the next operation" || line == "allinone cloud clock advance 5s") // the page reads the clock only once a second, so it may first show an old command
			})
			p.eval("document.querySelector('.toast [aria-label=Dismiss]')?.click()")
			p.eval(button + ".click()")
			if s.confirm != "" {
				p.awaitTrue("document.querySelector('dialog[open] input') !== null")
				p.do(chromedp.KeyEvent(s.confirm + kb.Enter))
			}
			p.awaitTrue("document.querySelector('.toast').innerText.includes(" + quote(s.wait) + ")")
			typed := exec.Command("sh", "-c", line)
			typed.Env = append(os.Environ(), "PATH="+filepath.Dir(link), "CLOUDSIM_URL="+b.url, "CLOUDSIM_TOKEN_FILE="+filepath.Join(b.dir, "admin.token"))
			if out, err := typed.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", line, err, out)
			}
			compared := lists
			if s.in == ".preset" {
				compared = []string{"faults"} // a fault can change the answers of the other lists
			}
			if x, y := a.content(compared...), b.content(compared...); x != y {
				t.Errorf("after the button and after %q the clouds differ:\n%s", line, difference(x, y))
			}
			for _, c := range []*cloud{a, b} {
				if s.in == ".preset" {
					c.runCommand(append([]string{"cloud", "faults", "delete"}, strings.Fields(c.runCommand("cloud", "faults", "list", "-o", "name"))...)...)
				}
			}
		})
	}
	p.t, a.t, b.t = t, t, t
}

// idOf returns the id of the object with the given name. If the name is "running", idOf returns the
// id of any object in the state running.
func (c *cloud) idOf(kind, name string) string {
	c.t.Helper()
	path := map[string]string{"loadBalancer": "load-balancers", "address": "addresses"}[kind]
	if path == "" {
		path = kind + "s"
	}
	_, body := c.call(http.MethodGet, "/v1/"+path, c.secret(), "")
	var list struct {
		Items []struct{ ID, Name, State string }
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		c.t.Fatal(err)
	}
	for _, o := range list.Items {
		if o.Name == name || name == "running" && o.State == "running" {
			return o.ID
		}
	}
	c.t.Fatalf("no %s %s: %s", kind, name, body)
	return ""
}

// difference compares two texts, and returns the lines that only one of the texts contains.
func difference(a, b string) string {
	var out strings.Builder
	for _, side := range [][3]string{{"button", a, b}, {"command", b, a}} {
		for line := range strings.Lines(side[1]) {
			if !strings.Contains(side[2], line) {
				fmt.Fprintf(&out, "%s: %s", side[0], line)
			}
		}
	}
	return out.String()
}
