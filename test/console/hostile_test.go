package console

import (
	"encoding/json"
	"net/http"
	"testing"
)

// hostile is a text that would run a script if the page took it as HTML.
const hostile = `<img src=x onerror=window.owned=1><script>window.owned=1</script>"'`

// A hostile text in each field that accepts any text is shown as text, in each view.
func TestHostileText(t *testing.T) {
	c := startCloud(t, "--profile", "instant")
	secret := c.secret()
	create := func(path string, body map[string]any) {
		t.Helper()
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		if status, answer := c.call(http.MethodPost, "/v1/"+path, secret, string(raw), "Cloud-Project", "default"); status >= 300 {
			t.Fatalf("%s: status %d: %s", path, status, answer)
		}
	}
	labels := map[string]any{"x": hostile, "kubernetes.io/service-name": hostile, "kubernetes.io/service-namespace": hostile}
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		create("instances", map[string]any{"name": name, "zone": "sim-1a", "type": "small", "labels": labels})
	}
	create("load-balancers", map[string]any{"name": "shop", "region": "sim-1", "healthCheck": map[string]any{"protocol": "tcp"}, "labels": labels, "listeners": []any{map[string]any{"protocol": "tcp", "port": 80, "targetPort": 30080}}})
	create("disks", map[string]any{"name": "data", "zone": "sim-1a", "type": "balanced", "sizeGiB": 1, "labels": labels})
	create("faults", map[string]any{"name": "broken", "match": map[string]any{"operation": "snapshots.create", "labels": map[string]any{"x": hostile}}, "effect": map[string]any{"type": "error", "message": hostile}})
	p := open(t, browser(t), c.link())
	for _, view := range append(views, "object/loadBalancer/"+c.idOf("loadBalancer", "shop"), "object/disk/"+c.idOf("disk", "data"), "object/fault/"+c.idOf("fault", "broken"),
		"resources/loadBalancer", "object/instance/%3Cimg%20src=x%20onerror=window.owned=1%3E", "object/%3Cimg%20src=x%20onerror=window.owned=1%3E/x") {
		p.visit(view)
		if view == "map" || view == "object/instance/i-000003" || view == "object/loadBalancer/"+c.idOf("loadBalancer", "shop") {
			p.shows(hostile)
		}
		if p.eval("window.owned") != "undefined" || p.eval("document.querySelectorAll('img, #app script').length") != "0" {
			t.Fatalf("%s: a hostile text became a part of the page", view)
		}
	}
	p.visit("resources/instance")
	p.eval("document.querySelector('input[aria-label=\"Filter rows\"]').focus()")
	p.typed(hostile + "x") // the labels of the instances contain the text without the x
	p.shows("No row matches the filter")
	p.eval("document.querySelector('.search input').focus()")
	p.typed(hostile)
	p.shows("No object has this name or id")
	p.press("Sign out")
	p.eval("document.querySelector('input[type=password]').focus()")
	p.typed(hostile + "\r")
	p.shows("Sign in to the console")
	if p.eval("window.owned") != "undefined" {
		t.Error("a typed text became a part of the page")
	}
}
