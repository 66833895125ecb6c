package console

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// maxPicture is the largest size of a picture in the documentation, in bytes.
const maxPicture = 300_000

// TestScreenshots writes the pictures of the documentation into a folder. The environment variable
// CONSOLE_SCREENSHOTS is the path of the folder. Times and addresses in the pictures differ between
// two runs.
func TestScreenshots(t *testing.T) {
	dir := os.Getenv("CONSOLE_SCREENSHOTS")
	if dir == "" {
		t.Skip("writes files: run make screenshots")
	}
	l := startLab(t)
	p := openPage(t, browser(t), l.link())
	p.card("node-1", "running")
	p.press("node-1")
	p.press("Crash")
	p.awaitText("Cloud and cluster differ")
	p.closeToast()
	p.picture(dir, "find-out-why-difference.png")
	p.press("Reboot")
	p.card("node-1", "running")
	p.closeToast()

	l.runCommand("cloud", "faults", "preset", "lost-reply")
	l.kubectl("create", "deployment", "web", "--image=web", "--replicas=3")
	l.kubectl("expose", "deployment", "web", "--type=LoadBalancer", "--port=8080")
	l.kubectl("wait", "service", "web", "--for=jsonpath={.status.loadBalancer.ingress[0].ip}", "--timeout=1m")
	p.visit("object/loadBalancer/lb-000001")
	p.awaitText("lost-reply")
	p.awaitTrue("document.querySelectorAll('.targets .bar').length === 3 && !document.querySelector('.targets').innerText.includes('unhealthy')")
	p.picture(dir, "find-out-why-load-balancer.png")
	l.runCommand("cloud", "faults", "delete", "lost-reply")

	l.runCommand("cloud", "instances", "stop", "node-1", "--wait")
	p.visit("map")
	p.awaitText("NotReady")
	p.awaitText("unhealthy")
	p.press("node-1")
	p.awaitText("instances.stop")
	p.awaitTrue("document.querySelector('.banner') === null") // the console has read the whole cluster
	p.picture(dir, "console.png")

	p.visit("faults")
	p.pressIn(".preset", "lost-reply", "Switch on")
	p.awaitText("Fault lost-reply is active")
	p.closeToast()
	p.picture(dir, "console-faults.png")
	p.press("Remove")

	l.runCommand("cloud", "durations", "set", "instance", "start", "20s")
	l.runCommand("cloud", "clock", "freeze")
	l.runCommand("cloud", "instances", "start", "node-1")
	p.visit("time")
	p.awaitText("start node-1")
	p.awaitText("Step to the next operation")
	p.eval("document.querySelector('.toast [aria-label=Dismiss]')?.click()")
	p.picture(dir, "console-time.png")
	l.runCommand("cloud", "clock", "set", "--real")
}

// closeToast waits for the notification about the last action, and closes it.
func (p *page) closeToast() {
	p.t.Helper()
	p.awaitTrue("document.querySelector('.toast [aria-label=Dismiss]') !== null")
	p.eval("document.querySelector('.toast [aria-label=Dismiss]').click()")
}

func (p *page) picture(dir, name string) {
	p.t.Helper()
	p.eval("(document.activeElement.blur(), 0)")
	png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	if len(png) > maxPicture {
		p.t.Errorf("%s has %d bytes, want at most %d", name, len(png), maxPicture)
	}
	if err := os.WriteFile(filepath.Join(dir, name), png, 0o644); err != nil {
		p.t.Fatal(err)
	}
}
