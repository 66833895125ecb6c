package console

import (
	"strings"
	"testing"
)

// A user can open a URL that is wrong, or a URL of an object that no longer exists. Each page then
// shows a clear text, and no text is wider than the page.
func TestURLsWithoutAnObject(t *testing.T) {
	c := startCloud(t)
	p := openPage(t, browser(t), c.link())
	p.awaitText("live")
	long := strings.Repeat("n", 5000)
	const noPage = "This URL belongs to no page of the console"
	for view, want := range map[string]string{
		"other":                      noPage,
		"constructor":                noPage,
		"__proto__":                  noPage,
		long:                         noPage,
		"resources/other":            noPage,
		"resources/constructor":      noPage,
		"object":                     noPage,
		"object/instance":            noPage,
		"object/instance/":           noPage,
		"object/instance/i-00000f":   "The history is not available: ",
		"object/instance/%":          "The history is not available: ",
		"object/instance/" + long:    "The history is not available: ",
		"object/" + long + "/" + "x": "The history is not available: ",
		"object/node/" + long:        "The console has no history of objects of the cluster",
		"object/constructor/x":       "This object does not exist now",
	} {
		p.visit(view)
		p.awaitText(want)
		if wide := p.eval("['main', 'html'].filter((n) => document.querySelector(n).scrollWidth > document.querySelector(n).clientWidth)"); wide != "" {
			t.Errorf("%.40s: the page is too wide (%s)", view, wide)
		}
	}
	p.press("Map")
	p.awaitText("No instance yet")
}
