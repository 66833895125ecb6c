package metadata_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/metadata"
)

// TestMetadataTree proves that the service serves the paths of a metadata tree to each
// instance. The paths exist from the creation of the tree until its deletion.
func TestMetadataTree(t *testing.T) {
	cl, ctx := cloudtest.Start(t), t.Context()
	admin := *cl
	admin.Project = ""
	var last cloudsim.Instance
	for n := range 12 {
		last = instance(t, cl, fmt.Sprint("a", n))
	}
	url := serve(t, cl, metadata.Config{Instance: last.ID})
	mac := cloudsim.MAC(netip.MustParseAddr(last.InternalIP())).String()
	get := func(path string) (int, string) { return sendRequest(t, http.DefaultClient, "GET", url+path) }
	if code, text := get("/hetzner/v1/metadata/instance-id"); code != 404 {
		t.Errorf("path of a missing tree: got %d %q, want 404", code, text)
	}
	tree := cloudsim.SetMetadataTree{MetadataTreeSpec: cloudsim.MetadataTreeSpec{
		Prefix: "/hetzner/v1/metadata",
		Leaves: []cloudsim.MetadataLeaf{
			{Path: "", Text: "instance-id: ${id.number}\nregion: ${region}\n"},
			{Path: "/instance-id", Text: "${id.number}"},
			{Path: "/availability-zone", Text: "${zone}-dc1"},
			{Path: "/uuid", Text: "${id.hex8}-0100-8000-8000-736f696d6f00"},
			{Path: "/account", Text: "${id.dec12}"},
			{Path: "/cards", Text: "${mac}/"},
			{Path: "/cards/${mac}/address", Text: "${internal-ip}"},
			{Path: "/accounts/${service-account}", Text: "x"},
			{Path: "/private-networks", Text: "- ip: ${internal-ip}\n  network_id: ${network.number}\n"},
			{Path: "/public-ipv4", Text: "${external-ip}"},
			{Path: "/deep/path", Text: "${labels.app.io/tier}"},
			{Path: "/doc", Text: `{"cost":"$5","tier":"${labels.odd}"}`, JSON: true},
		},
	}}
	if _, err := admin.SetMetadataTree(ctx, "hetzner", tree); err != nil {
		t.Fatal(err)
	}
	if _, err := cl.UpdateInstance(ctx, last.ID, cloudsim.UpdateInstance{Labels: map[string]string{"app.io/tier": "web", "odd": `a"b`}}, 0); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/hetzner/v1/metadata":                           "instance-id: 12\nregion: sim-1\n",
		"/hetzner/v1/metadata/":                          "instance-id: 12\nregion: sim-1\n",
		"/hetzner/v1/metadata/instance-id":               "12",
		"/hetzner/v1/metadata/availability-zone":         "sim-1a-dc1",
		"/hetzner/v1/metadata/uuid":                      "0000000c-0100-8000-8000-736f696d6f00",
		"/hetzner/v1/metadata/private-networks":          "- ip: " + last.InternalIP() + "\n  network_id: 1\n",
		"/hetzner/v1/metadata/deep/path":                 "web",
		"/hetzner/v1/metadata/account":                   "000000000012",
		"/hetzner/v1/metadata/cards/":                    mac + "/",
		"/hetzner/v1/metadata/cards/" + mac + "/address": last.InternalIP(),
		"/hetzner/v1/metadata/doc":                       `{"cost":"$5","tier":"a\"b"}`,
	} {
		if code, got := get(path); code != 200 || got != want {
			t.Errorf("%s: got %d %q, want %q", path, code, got, want)
		}
	}
	for path, want := range map[string]int{
		"/hetzner/v1/metadata/public-ipv4":     404, // the instance has no external address
		"/hetzner/v1/metadata/other":           404,
		"/hetzner/v1/metadata/accounts/":       404, // the instance has no service account
		"/hetzner/v1/metadata/cards/x/address": 404,
		"/hetzner/v1/metadataX":                404,
		"/hetzner":                             404,
		"/v1/instance/id":                      401, // the service's own paths still need a session
	} {
		if code, got := get(path); code != want {
			t.Errorf("%s: got %d %q, want %d", path, code, got, want)
		}
	}
	if code, got := sendRequest(t, http.DefaultClient, "POST", url+"/hetzner/v1/metadata/instance-id"); code != 405 {
		t.Errorf("POST: got %d %q, want 405", code, got)
	}
	if code, got := sendRequest(t, http.DefaultClient, "GET", url+"/hetzner/v1/metadata/instance-id", "X-Forwarded-For", "10.0.0.1"); code != 403 {
		t.Errorf("request with X-Forwarded-For: got %d %q, want 403", code, got)
	}
	if err := admin.DeleteMetadataTree(ctx, "hetzner"); err != nil {
		t.Fatal(err)
	}
	if code, text := get("/hetzner/v1/metadata/instance-id"); code != 404 {
		t.Errorf("path of a deleted tree: got %d %q, want 404", code, text)
	}
}

// TestMetadataTreeSession proves that, for a tree with sessions, the service answers only
// if an instance sends its own token.
func TestMetadataTreeSession(t *testing.T) {
	cl, ctx := cloudtest.Start(t), t.Context()
	admin := *cl
	admin.Project = ""
	a, b := instance(t, cl, "a"), instance(t, cl, "b")
	if _, err := admin.SetMetadataTree(ctx, "aws", cloudsim.SetMetadataTree{MetadataTreeSpec: cloudsim.MetadataTreeSpec{
		Prefix:  "/latest/meta-data",
		Session: &cloudsim.MetadataSession{Path: "/latest/api/token", TTLHeader: "X-aws-ec2-metadata-token-ttl-seconds", TokenHeader: "X-aws-ec2-metadata-token"},
		Leaves:  []cloudsim.MetadataLeaf{{Path: "/instance-id", Text: "i-${id.hex17}"}},
	}}); err != nil {
		t.Fatal(err)
	}
	url := serve(t, cl, metadata.Config{Instance: a.ID})
	const path, header = "/latest/meta-data/instance-id", "X-aws-ec2-metadata-token"
	if code, got := sendRequest(t, http.DefaultClient, "GET", url+path); code != 401 || !strings.Contains(got, "PUT /latest/api/token") || !strings.Contains(got, header) {
		t.Errorf("request without a token: got %d %q, want 401 with the path and the header of tokens", code, got)
	}
	if code, got := sendRequest(t, http.DefaultClient, "PUT", url+"/latest/api/token"); code != 400 {
		t.Errorf("token request without a lifetime: got %d %q, want 400", code, got)
	}
	token := func(url string) string {
		code, token := sendRequest(t, http.DefaultClient, "PUT", url+"/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds", "60")
		if code != 200 {
			t.Fatalf("token request: got %d %q, want 200", code, token)
		}
		return token
	}
	if code, got := sendRequest(t, http.DefaultClient, "GET", url+path, header, token(url)); code != 200 || got != "i-00000000000000001" {
		t.Errorf("request with a token: got %d %q, want 200 with the instance id", code, got)
	}
	if code, got := sendRequest(t, http.DefaultClient, "GET", url+path, header, token(serve(t, cl, metadata.Config{Instance: b.ID}))); code != 401 {
		t.Errorf("request with the token of another instance: got %d %q, want 401", code, got)
	}
}

// TestMetadataTreeCredentials proves that an instance gets the temporary credentials of its service
// account from a metadata tree that requires session tokens. A caller from a shared loopback
// address does not get these credentials.
func TestMetadataTreeCredentials(t *testing.T) {
	cl, ctx := cloudtest.Start(t), t.Context()
	admin := *cl
	admin.Project = ""
	if _, err := cl.CreateServiceAccount(ctx, cloudsim.CreateServiceAccount{Name: "node"}); err != nil {
		t.Fatal(err)
	}
	with, err := cl.CreateInstance(ctx, cloudsim.CreateInstance{Name: "with", Zone: "sim-1a", Type: "small", ServiceAccount: "node"})
	if err != nil {
		t.Fatal(err)
	}
	without := instance(t, cl, "without")
	if _, err := admin.SetMetadataTree(ctx, "aws", cloudsim.SetMetadataTree{MetadataTreeSpec: cloudsim.MetadataTreeSpec{
		Prefix:  "/latest",
		Session: &cloudsim.MetadataSession{Path: "/latest/token", TTLHeader: "TTL", TokenHeader: "Token"},
		Leaves: []cloudsim.MetadataLeaf{
			{Path: "/roles/${service-account}", JSON: true, Text: `{"id":"${access-key.id}","secret":"${access-key.secret}","session":"${access-key.session-token}","until":"${access-key.expires-at}"}`},
		},
	}}); err != nil {
		t.Fatal(err)
	}
	get := func(c metadata.Config, path string) (int, string) {
		url, hc := serve(t, cl, c), clientFrom(t, with.InternalIP())
		_, token := sendRequest(t, hc, "PUT", url+"/latest/token", "TTL", "60")
		return sendRequest(t, hc, "GET", url+path, "Token", token)
	}
	code, text := get(metadata.Config{Instance: with.ID}, "/latest/roles/sa-000001")
	var got struct {
		ID, Secret, Session string
		Until               time.Time
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || code != 200 {
		t.Fatalf("credentials: got %d %q, error %v", code, text, err)
	}
	now, err := cl.GetClock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if left := got.Until.Sub(now.Now); left < cloudsim.InstanceTokenLife/2-time.Second || left > cloudsim.InstanceTokenLife {
		t.Errorf("lifetime of the credentials: got %s, want about %s to %s", left, cloudsim.InstanceTokenLife/2, cloudsim.InstanceTokenLife)
	}
	s := cloudsim.Signature{AccessKey: cloudsim.AccessKeyID(got.ID), Time: now.Now, Region: "r", Service: "s", Hash: strings.Repeat("0", 64), SessionToken: got.Session}
	s.Signature = s.Sign(got.Secret)
	signer := *cl
	signer.Token, signer.Project = client.StaticToken(s.Token()), ""
	if me, err := signer.WhoAmI(ctx); err != nil || me.Caller != "node" {
		t.Errorf("caller with the credentials: got %+v, error %v", me, err)
	}
	if code, text := get(metadata.Config{Instance: without.ID}, "/latest/roles/sa-000001"); code != 404 {
		t.Errorf("instance without a service account: got %d %q, want 404", code, text)
	}
	if code, text := get(metadata.Config{Instance: with.ID}, "/latest/roles/sa-000002"); code != 404 {
		t.Errorf("another service account: got %d %q, want 404", code, text)
	}
	if code, text := get(metadata.Config{}, "/latest/roles/sa-000001"); code != 403 || !strings.Contains(text, "--trust-loopback") {
		t.Errorf("caller from a loopback address: got %d %q, want 403", code, text)
	}
	if code, text := get(metadata.Config{TrustLoopback: true}, "/latest/roles/sa-000001"); code != 200 {
		t.Errorf("trusted caller from a loopback address: got %d %q, want 200", code, text)
	}
}

func TestMetadataTreesDoNotOverlap(t *testing.T) {
	cl, ctx := cloudtest.Start(t), t.Context()
	admin := *cl
	admin.Project = ""
	tree := func(prefix, session string) cloudsim.SetMetadataTree {
		req := cloudsim.SetMetadataTree{MetadataTreeSpec: cloudsim.MetadataTreeSpec{Prefix: prefix, Leaves: []cloudsim.MetadataLeaf{{Path: "/id", Text: "${id}"}}}}
		if session != "" {
			req.Session = &cloudsim.MetadataSession{Path: session, TTLHeader: "a", TokenHeader: "b"}
		}
		return req
	}
	first, err := admin.SetMetadataTree(ctx, "first", tree("/latest/meta-data", "/latest/api/token"))
	if err != nil {
		t.Fatal(err)
	}
	repeated, err := admin.SetMetadataTree(ctx, "first", tree("/latest/meta-data", "/latest/api/token"))
	if err != nil || repeated.Revision != first.Revision {
		t.Errorf("same tree again: got revision %d, error %v; want revision %d", repeated.Revision, err, first.Revision)
	}
	for _, other := range []cloudsim.SetMetadataTree{
		tree("/latest/meta-data", ""), tree("/latest", ""), tree("/latest/meta-data/x", ""), tree("/latest/api", ""),
		tree("/x", "/latest/api/token"), tree("/x", "/latest/meta-data/token"),
	} {
		if _, err := admin.SetMetadataTree(ctx, "second", other); !errors.Is(err, cloudsim.Conflict) {
			t.Errorf("%+v: got error %v, want Conflict", other.MetadataTreeSpec, err)
		}
	}
	if _, err := admin.SetMetadataTree(ctx, "second", tree("/latest/meta-data-2", "")); err != nil {
		t.Error(err)
	}
	for _, bad := range []cloudsim.SetMetadataTree{tree("/v1", ""), tree("/v1/x", ""), tree("/x", "/v1/token"), tree("x", ""), tree("/x/", ""), tree("/x/../y", "")} {
		if _, err := admin.SetMetadataTree(ctx, "third", bad); !errors.Is(err, cloudsim.Invalid) {
			t.Errorf("%+v: got error %v, want Invalid", bad.MetadataTreeSpec, err)
		}
	}
	for _, text := range []string{"${secret}", "${id.hex0}", "${id.oct3}", "${name.number}", "${id", "${labels.}", "${access-key.id}"} {
		bad := tree("/x", "")
		bad.Leaves[0].Text = text
		if _, err := admin.SetMetadataTree(ctx, "third", bad); !errors.Is(err, cloudsim.Invalid) || !strings.Contains(err.Error(), "leaves[0].text") {
			t.Errorf("text %q: got error %v, want Invalid with the field leaves[0].text", text, err)
		}
	}
	for _, path := range []string{"/${secret}", "/${id", "/a${id}/", "/${access-key.id}", "/a/../${id}"} {
		bad := tree("/x", "/y")
		bad.Leaves[0].Path = path
		if _, err := admin.SetMetadataTree(ctx, "third", bad); !errors.Is(err, cloudsim.Invalid) || !strings.Contains(err.Error(), "leaves[0].path") {
			t.Errorf("path %q: got error %v, want Invalid with the field leaves[0].path", path, err)
		}
	}
}
