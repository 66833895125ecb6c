package console

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// hostileText is a text that would run a script if the page inserted it as HTML.
const hostileText = `<img src=x onerror=window.owned=1><script>window.owned=1</script>"'`

// The test writes a hostile text into each field that accepts any text. Each view must show the
// hostile text as plain text.
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
	labels := map[string]any{"x": hostileText, "kubernetes.io/service-name": hostileText, "kubernetes.io/service-namespace": hostileText}
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		create("instances", map[string]any{"name": name, "zone": "sim-1a", "type": "small", "labels": labels, "userData": hostileText})
	}
	create("load-balancers", map[string]any{"name": "shop", "region": "sim-1", "healthCheck": map[string]any{"protocol": "http", "path": "/" + hostileText}, "labels": labels, "listeners": []any{map[string]any{"protocol": "tcp", "port": 80, "targetPort": 30080}}})
	create("disks", map[string]any{"name": "data", "zone": "sim-1a", "type": "balanced", "sizeGiB": 1, "labels": labels})
	create("snapshots", map[string]any{"name": "copy", "disk": c.idOf("disk", "data"), "labels": labels})
	create("addresses", map[string]any{"name": "ip-1", "labels": labels})
	create("networks", map[string]any{"name": "other", "ipv4": "10.10.0.0/16", "labels": labels})
	create("subnets", map[string]any{"name": "other-a", "network": c.idOf("network", "other"), "zone": "sim-1a", "ipv4": "10.10.1.0/24", "labels": labels})
	create("routes", map[string]any{"name": "office", "destination": "192.168.0.0/16", "nextHop": c.idOf("instance", "node-1"), "labels": labels})
	create("holds", map[string]any{"name": "held", "kind": "disk", "verb": "delete", "labels": labels})
	create("faults", map[string]any{"name": "broken", "match": map[string]any{"operation": "snapshots.create", "labels": map[string]any{"x": hostileText}}, "effect": map[string]any{"type": "error", "message": hostileText}})
	p := openPage(t, browser(t), c.link())
	all := slices.Clone(views)
	for kind, name := range map[string]string{
		"loadBalancer": "shop", "disk": "data", "fault": "broken", "snapshot": "copy", "address": "ip-1", "network": "other", "subnet": "other-a", "route": "office", "hold": "held",
	} {
		all = append(all, "resources/"+kind, "object/"+kind+"/"+c.idOf(kind, name))
	}
	for _, view := range append(all, "object/instance/%3Cimg%20src=x%20onerror=window.owned=1%3E", "object/%3Cimg%20src=x%20onerror=window.owned=1%3E/x") {
		p.visit(view)
		if view == "map" || strings.HasPrefix(view, "object/") && !strings.HasSuffix(view, "x") && !strings.HasSuffix(view, "E") { // the last two pages show no object
			p.awaitText(hostileText)
		}
		if p.eval("window.owned") != "undefined" || p.eval("document.querySelectorAll('img, #app script').length") != "0" {
			t.Fatalf("%s: a hostile text became a part of the page", view)
		}
	}
	p.visit("resources/instance")
	p.eval("document.querySelector('input[aria-label=\"Filter rows\"]').focus()")
	p.sendKeys(hostileText + "x") // the labels of the instances contain the text without the x
	p.awaitText("No row matches the filter")
	p.eval("document.querySelector('.search input').focus()")
	p.sendKeys(hostileText)
	p.awaitText("No object has this name or id")
	p.press("Sign out")
	p.eval("document.querySelector('input[type=password]').focus()")
	p.sendKeys(hostileText + "\r")
	p.awaitText("Sign in to the console")
	if p.eval("window.owned") != "undefined" {
		t.Error("a typed text became a part of the page")
	}
}
