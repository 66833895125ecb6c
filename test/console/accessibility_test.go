package console

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// scene creates a cloud with objects of most kinds. The objects are in several states.
func scene(t testing.TB) *cloud {
	t.Helper()
	c := startCloud(t, "--profile", "instant")
	c.apply(`instances:
  - {name: node-1, zone: sim-1a, type: small}
  - {name: node-2, zone: sim-1b, type: small}
  - {name: node-3, zone: sim-1a, type: small}
  - {name: node-4, zone: sim-1c, type: small}
loadBalancers:
  - {name: shop, region: sim-1, healthCheck: {protocol: tcp}, listeners: [{protocol: tcp, port: 80, targetPort: 30080}], targets: [{instance: node-1}, {instance: node-3}]}
`)
	c.runCommand("cloud", "instances", "stop", "node-3", "--wait")
	c.runCommand("cloud", "instances", "crash", "node-4")
	c.runCommand("cloud", "disks", "create", "data", "--zone", "sim-1a", "--size", "1", "--wait")
	c.runCommand("cloud", "disks", "attach", "data", "node-1", "--wait")
	c.runCommand("cloud", "faults", "preset", "zone-dark", "--zone", "sim-1c")
	c.runCommand("cloud", "holds", "create", "slow-stop", "--kind", "instance", "--verb", "stop")
	c.runCommand("cloud", "instances", "stop", "node-2")
	c.runCommand("cloud", "state", "save", "before")
	return c
}

// The program axe-core finds no violation of the accessibility rules WCAG 2.2 A and AA in any view.
// The test checks each view in light and dark, with a width of 320 pixels, and with text of twice
// the size. No view needs horizontal scrolling.
func TestAccessibility(t *testing.T) {
	c := scene(t)
	p := openPage(t, browser(t), c.url+"/console/")
	p.awaitText("Sign in to the console")
	p.checkAccessibility("sign-in")
	p.do(chromedp.Navigate(c.link()))
	p.awaitText("node-1")
	p.press("node-3")
	p.awaitText("instances.stop")
	for _, view := range append(views, "object/loadBalancer/"+c.idOf("loadBalancer", "shop"), "resources/operation") {
		p.visit(view)
		p.checkAccessibility(view)
	}
	p.eval("document.querySelector('main').focus()") // the following lines check the dialog of an action that cannot be undone
	p.press("Resources")
	p.visit("object/instance/i-000003")
	p.press("Delete…")
	p.awaitTrue("document.querySelector('dialog[open]') !== null")
	p.checkAccessibility("dialog")
}

// checkAccessibility checks the current view in light and dark, with a width of 320 pixels, and
// with text of twice the size. Then it restores the original appearance.
func (p *page) checkAccessibility(view string) {
	p.t.Helper()
	look := func(scheme string, width, factor int64) {
		p.t.Helper()
		p.media("prefers-color-scheme", scheme)
		p.size(width, 900)
		command(p, cdppage.SetFontSizes, cdppage.SetFontSizesParams{FontSizes: &cdppage.FontSizes{Standard: 16 * factor, Fixed: 13 * factor}})
	}
	for _, l := range []struct {
		name, scheme  string
		width, factor int64 // factor multiplies the size of the text
	}{{"light", "light", 1440, 1}, {"dark", "dark", 1440, 1}, {"320 px", "light", 320, 1}, {"text of 200 %", "light", 1280, 2}} {
		look(l.scheme, l.width, l.factor)
		at := view + ", " + l.name
		p.axe(at)
		if wide := strings.Fields(p.eval("document.documentElement.scrollWidth + ' ' + innerWidth")); wide[0] != wide[1] {
			p.t.Errorf("%s: the page has a width of %s pixels, its window %s", at, wide[0], wide[1])
		}
	}
	look("light", 1440, 1)
}

func (p *page) axe(view string) {
	p.t.Helper()
	p.eval("(typeof axe === 'undefined' && (() => {" + axe + "\n})(), 0)")
	p.eval(`(window.found = null, axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']}).then((r) => window.found = r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.html.slice(0, 160) + ' ' + n.failureSummary.slice(0, 200)).join(' | '))), 0)`)
	p.awaitTrue("window.found !== null")
	if found := p.eval("window.found.join('\\n')"); found != "" {
		p.t.Errorf("%s: %s", view, found)
	}
}

func (p *page) sendKeys(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// focus is a JavaScript expression for the label of the element with the focus.
const focus = "(document.activeElement.getAttribute('aria-label') || document.activeElement.labels?.[0]?.innerText || document.activeElement.innerText || document.activeElement.tagName).trim()"

// checkFocus checks that an element has the focus and a visible outline.
func (p *page) checkFocus() {
	p.t.Helper()
	if at := p.eval(`(() => {
		const e = document.activeElement, s = getComputedStyle(e), b = e.getBoundingClientRect();
		if (e === document.body) return 'no element has the focus';
		if (s.outlineStyle === 'none' || parseFloat(s.outlineWidth) < 1) return 'the focus is not visible: ' + e.outerHTML.slice(0, 200);
		if (b.width === 0 || b.height === 0) return 'the element with the focus has no size: ' + e.outerHTML.slice(0, 200);
		return '';
	})()`); at != "" {
		p.t.Fatal(at)
	}
}

// tab presses the Tab key until the element with the focus has a label that begins with the given
// text.
func (p *page) tab(label string) {
	p.t.Helper()
	p.tabTo(focus + ".startsWith(" + quote(label) + ")")
}

// tabTo presses the Tab key until a JavaScript expression about the element with the focus is true.
func (p *page) tabTo(expression string) {
	p.t.Helper()
	for range 150 {
		p.sendKeys(kb.Tab)
		if p.eval("document.activeElement === document.body") == "true" {
			continue // the focus went from the last element to the browser
		}
		p.checkFocus()
		if p.eval(expression) == "true" {
			return
		}
	}
	p.t.Fatalf("the Tab key does not reach an element with %s; the page shows:\n%s", expression, p.text())
}

// find opens the search field with the key "/", types a name, and waits for a hit.
func (p *page) find(name string) {
	p.t.Helper()
	for _, typ := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeRawKeyDown, input.DispatchKeyEventTypeKeyUp} {
		command(p, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: typ, Key: "/", Code: "Slash"})
	}
	p.checkFocus()
	p.sendKeys(name)
	p.awaitTrue("document.querySelector('.hits a b')?.innerText === " + quote(name))
}

// All tasks work with the keyboard alone. The focus is always visible, and no update removes the
// focus.
func TestKeyboard(t *testing.T) {
	c := startCloud(t, "--profile", "instant")
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		c.instance(name, "sim-1a")
	}
	p := openPage(t, browser(t), c.url+"/console/")
	p.awaitText("Sign in to the console")
	p.tab("Or paste a token")
	p.sendKeys(c.secret() + kb.Enter)
	p.card("node-3", "running")

	// Find an instance, stop it, and read why it is stopped.
	p.find("node-2")
	p.sendKeys(kb.Enter)
	p.awaitTrue("document.querySelector('main h1').innerText === 'node-2'")
	p.checkFocus()
	p.tab("Stop")
	p.awaitText("allinone cloud instances stop node-2")
	p.sendKeys(kb.Enter)
	p.awaitText("Why it is stopped")
	p.awaitText("instances.stop")
	p.checkFocus()
	p.tab("Start") // the focus order continues with the buttons of the new state

	// Open the map, select an instance, and stop the instance in the panel.
	p.tab("Map")
	p.sendKeys(kb.Enter)
	p.tab("node-3")
	p.sendKeys(kb.Enter)
	p.awaitTrue("document.activeElement.id === 'panel'")
	p.checkFocus()
	p.tab("Stop")
	p.sendKeys(kb.Enter)
	p.card("node-3", "stopped")
	p.checkFocus()
	p.sendKeys(kb.Escape)
	p.awaitTrue("document.activeElement.innerText.startsWith('node-3')")
	p.checkFocus()

	// Create and remove a fault.
	p.tab("Faults")
	p.sendKeys(kb.Enter)
	p.awaitText("Presets")
	p.tab("Switch on")
	p.sendKeys(kb.Enter)
	p.awaitText("is active")
	p.checkFocus()
	p.eval("document.querySelector('.skip').focus()") // the banner is at the beginning of the content
	p.sendKeys(kb.Enter)
	p.awaitTrue("document.activeElement.id === 'main'")
	p.tab("Remove")
	p.sendKeys(kb.Enter)
	p.awaitTrue("!" + has("is active."))
	p.checkFocus()

	// While a dialog is open, the focus stays in the dialog. Afterward the focus returns to the
	// button that opened the dialog.
	p.find("node-1")
	p.sendKeys(kb.Enter)
	p.awaitTrue("document.querySelector('main h1').innerText === 'node-1'")
	p.tab("Delete…")
	p.sendKeys(kb.Enter)
	p.awaitTrue("document.activeElement.getAttribute('aria-label') === 'Name to confirm'")
	p.sendKeys(kb.Escape)
	p.awaitTrue(focus + " === 'Delete…'")
	p.sendKeys(kb.Enter)
	p.awaitTrue("document.activeElement.getAttribute('aria-label') === 'Name to confirm'")
	p.sendKeys("node-1" + kb.Enter)
	p.awaitText("This object does not exist now")
	p.checkFocus()
}

// The browser sends the event "close" some time after a dialog has closed. If the user opens the
// dialog again before this event, the dialog stays open.
func TestDialogOpensAgain(t *testing.T) {
	c := startCloud(t, "--profile", "instant")
	c.instance("node-1", "sim-1a")
	p := openPage(t, browser(t), c.link())
	p.card("node-1", "running")
	p.visit("object/instance/i-000001")
	p.tab("Delete…")
	p.sendKeys(kb.Enter)
	const dialog = "document.activeElement.getAttribute('aria-label') === 'Name to confirm'"
	p.awaitTrue(dialog)
	p.eval("document.querySelector('dialog').addEventListener('close', () => (window.sawClose = true))")
	p.eval("(" + button("Cancel") + ".click(), Promise.resolve().then(() => document.activeElement.click()), 0)")
	p.awaitTrue("window.sawClose && " + dialog)
	p.sendKeys(kb.Escape)
	p.awaitTrue("document.querySelector('dialog') === null && " + focus + " === 'Delete…'")
}

// While instances change, the focus stays on the same instance, even in a sorted table. After the
// deletion of this instance, another element has the focus.
func TestFocusDuringUpdates(t *testing.T) {
	c := startCloud(t, "--profile", "instant")
	c.createInstances(20)
	p := openPage(t, browser(t), c.link())
	for _, view := range []string{"map", "resources/instance"} {
		p.visit(view)
		p.tab("n-7")
		for _, verb := range []string{"stop", "start"} {
			for _, name := range []string{"n-6", "n-7", "n-8"} {
				c.runCommand("cloud", "instances", verb, name, "--wait")
			}
			last := strings.Fields(c.runCommand("cloud", "events", "--last", "1", "--no-headers"))[0]
			p.awaitTrue("document.querySelector('footer').innerText.includes('revision " + last + "')")
			if at := p.eval(focus); !strings.HasPrefix(at, "n-7") {
				t.Fatalf("%s: the focus moved to %q", view, at)
			}
		}
	}
	c.runCommand("cloud", "instances", "delete", "n-7", "--wait")
	p.awaitTrue("!document.querySelector('main').innerText.includes('n-7')")
	p.awaitTrue("document.activeElement !== document.body")
	p.checkFocus()
}

// The page announces a change to screen readers once. During many changes, it waits at least two
// seconds between two announcements. After the loss of the connection, the page shows the
// increasing age of its data. During this time, it announces the loss only once.
func TestLiveRegions(t *testing.T) {
	c := startCloud(t, "--profile", "instant")
	c.createInstances(60)
	p := openPage(t, browser(t), c.link())
	p.awaitText("n-60")
	record := `window.heard = [];
		new MutationObserver((all) => {
			for (const m of all) {
				const e = m.target.nodeType === 1 ? m.target : m.target.parentElement;
				const region = e?.closest('[aria-live], [role=status], [role=alert]');
				if (region?.innerText) heard.push({ at: performance.now(), text: region.innerText });
			}
		}).observe(document.body, { childList: true, characterData: true, subtree: true })`
	p.eval("(" + strings.ReplaceAll(record, "window.heard = [];", "window.heard = [],") + ", 0)")
	c.runCommand("cloud", "instances", "stop", "n-4", "--wait")
	p.awaitTrue("heard.some((h) => h.text === 'n-4 stopped')")
	for i := range 60 {
		c.call("POST", fmt.Sprintf("/v1/instances/i-%06x/stop", i+1), c.secret(), "")
	}
	p.awaitTrue("heard.some((h) => h.text.endsWith('objects changed'))")
	if n := p.eval("heard.filter((h) => h.text === 'n-4 stopped').length"); n != "1" {
		t.Errorf("the change was announced %s times, want 1: %s", n, p.eval("JSON.stringify(heard)"))
	}
	// The page waits two seconds between two announcements. A busy browser can show the first
	// announcement late, so the test requires only one second.
	if close := p.eval("heard.filter((h, i) => i && h.at - heard[i - 1].at < 1000).length"); close != "0" {
		t.Errorf("%s announcements are less than 1 s apart: %s", close, p.eval("JSON.stringify(heard)"))
	}
	p.awaitTrue("performance.now() - heard.at(-1).at > 3000") // the page has announced all changes
	p.eval("heard.length = 0")
	c.kill()
	p.awaitTrue("/data is [3-9] s old/.test(document.body.innerText)")
	if got := p.eval("heard.map((h) => h.text).join('|')"); got != "disconnected, retrying" {
		t.Errorf("during the outage the page announced %q", got)
	}
}

// If the browser reports that the user prefers reduced motion, no element moves.
func TestReducedMotion(t *testing.T) {
	c := scene(t)
	p := openPage(t, browser(t), c.link())
	p.media("prefers-reduced-motion", "reduce")
	for _, view := range views {
		p.visit(view)
		if n := p.eval("document.getAnimations().length + [...document.querySelectorAll('*')].filter((e) => parseFloat(getComputedStyle(e).transitionDuration) > 0 || getComputedStyle(e).scrollBehavior === 'smooth').length"); n != "0" {
			t.Errorf("%s has %s moving elements", view, n)
		}
	}
}

// Users can distinguish the states without the colors of the console. The states stay
// distinguishable if the user's system forces its own colors, or if the screen shows only shades
// of gray. If the map shows many instances as squares, each state also has its own shape.
func TestStatesWithoutColors(t *testing.T) {
	c := scene(t)
	p := openPage(t, browser(t), c.link())
	p.awaitText("node-4")
	for _, forced := range []string{"none", "active"} {
		p.media("forced-colors", forced)
		if got := p.eval(`(() => {
			const problems = [], shapes = new Map();
			for (const s of document.querySelectorAll('.state')) {
				const tone = s.classList[1], svg = s.querySelector('svg');
				const shape = svg.innerHTML;
				if (!s.innerText.trim()) problems.push('a state has no word');
				for (const [other, drawn] of shapes) if (other !== tone && drawn === shape) problems.push(other + ' looks like ' + tone);
				shapes.set(tone, shape);
				if (svg.getBoundingClientRect().width < 8) problems.push(tone + ' has no visible shape');
				let around = s;
				while (getComputedStyle(around).backgroundColor === 'rgba(0, 0, 0, 0)') around = around.parentElement;
				if (getComputedStyle(svg).color === getComputedStyle(around).backgroundColor) problems.push(tone + ' has the color of its background');
			}
			if (shapes.size < 3) problems.push('the map has only the tones ' + [...shapes.keys()]);
			return problems.join('\n');
		})()`); got != "" {
			t.Errorf("forced colors %s: %s", forced, got)
		}
	}
	p.media("forced-colors", "none")
	c.createInstances(150)
	p.awaitText("All instances as a table")
	// The map must contain five shapes. Four shapes are for the states running, stopped, stopping
	// and crashed. The fifth shape is the empty place after the last instance.
	p.awaitTrue(`(() => {
		const masks = new Set();
		for (const c of document.querySelectorAll('canvas')) {
			const g = c.getContext('2d'), cell = c.width / 40;
			for (let i = 0; i < 40 * Math.round(c.height / cell); i++) masks.add([...g.getImageData((i % 40) * cell, Math.floor(i / 40) * cell, cell, cell).data].filter((_, n) => n % 4 === 3).map((a) => (a > 127 ? 1 : 0)).join(''));
		}
		return masks.size >= 5;
	})()`)
}

// Printed pages have no controls, and tables have all rows and their headings.
func TestPrint(t *testing.T) {
	c := startCloud(t, "--profile", "instant")
	c.createInstances(100)
	p := openPage(t, browser(t), c.link())
	p.visit("resources/instance")
	p.awaitText("n-1")
	p.eval("(window.rows = 0, new MutationObserver(() => window.rows = Math.max(window.rows, document.querySelectorAll('tbody tr[aria-rowindex]').length)).observe(document.querySelector('tbody'), { childList: true }), 0)")
	pdf, err := chromedp.Run(p.ctx, chromedp.PrintToPDF())
	if err != nil || len(pdf) < 1000 {
		t.Fatalf("printed page: got %d bytes, error %v; want at least 1000", len(pdf), err)
	}
	if n := p.eval("window.rows"); n != "100" {
		t.Errorf("the printed table has %s rows, want 100", n)
	}
	p.awaitTrue("document.querySelectorAll('tbody tr').length < 100")
	command(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})
	for _, view := range []string{"map", "resources/instance", "object/instance/i-000003", "events"} {
		p.visit(view)
		if got := p.eval(`(() => {
			const problems = [], shown = (e) => e.getClientRects().length > 0;
			for (const e of document.querySelectorAll('header, footer, nav[aria-label=Views], .cmd, .actions button')) if (shown(e)) problems.push('printed: ' + e.outerHTML.slice(0, 80));
			for (const e of document.querySelectorAll('main, aside, .table')) if (shown(e) && e.scrollHeight > e.clientHeight + 2) problems.push('cut off: ' + e.outerHTML.slice(0, 80));
			for (const e of document.querySelectorAll('th')) if (!e.innerText.trim()) problems.push('a heading of a table is not printed');
			return problems.join('\n');
		})()`); got != "" {
			t.Errorf("%s: %s", view, got)
		}
	}
}

// The first picture that the browser draws already has the colors of the system's dark mode.
func TestDarkMode(t *testing.T) {
	c := startCloud(t)
	p := openPage(t, browser(t), "about:blank")
	p.media("prefers-color-scheme", "dark")
	p.url = c.url + "/console/"
	p.do(chromedp.Navigate(p.url))
	p.awaitText("Sign in to the console")
	dark := p.eval("getComputedStyle(document.body).backgroundColor")
	p.media("prefers-color-scheme", "light")
	if light := p.eval("getComputedStyle(document.body).backgroundColor"); light == dark {
		t.Errorf("background in dark mode: got %s, want another color than in light mode", dark)
	}
	if n := p.eval("document.querySelectorAll('link[rel=stylesheet][href]:not([media])').length"); n != "1" {
		t.Errorf("%s style sheets block the first picture, want 1", n)
	}
}
