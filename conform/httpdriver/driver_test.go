package httpdriver_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/cloudsim-dev/allinone/conform"
	"github.com/cloudsim-dev/allinone/conform/fake"
	"github.com/cloudsim-dev/allinone/conform/httpdriver"
)

func start(t *testing.T, h http.Handler) conform.Driver {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	d, err := httpdriver.New(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestSameAnswers proves that a driver gives the same answers over HTTP as without HTTP.
func TestSameAnswers(t *testing.T) {
	cloud := fake.NewCloud()
	d, ctx := start(t, httpdriver.Handler(cloud)), t.Context()
	m, err := d.CreateMachine(ctx, conform.Machine{Name: "a b/c"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := d.GetMachine(ctx, m.Name); err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("GetMachine: got %+v, %v, want %+v", got, err, m)
	}
	if err := d.StopMachine(ctx, m.Name); err != nil {
		t.Error(err)
	}
	if got, err := cloud.GetMachine(ctx, m.Name); err != nil || got.Running {
		t.Errorf("after a stop: %+v, %v", got, err)
	}
	if err := d.StartMachine(ctx, m.Name); err != nil {
		t.Error(err)
	}
	r, err := d.CreateRoute(ctx, conform.Route{CIDR: "10.1.0.0/24", Machine: m.Name})
	if err != nil || r.ID == "" {
		t.Errorf("route: %+v, %v", r, err)
	}
	if all, err := d.ListRoutes(ctx); err != nil || !slices.Equal(all, []conform.Route{r}) {
		t.Errorf("routes: %+v, %v", all, err)
	}
	for _, err := range []error{
		d.DeleteRoute(ctx, r.ID), d.DeleteMachine(ctx, m.Name),
		d.SetFault(ctx, conform.Fault{Kind: conform.FaultError, Writes: true, Count: 2}), d.ClearFault(ctx),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	_, missing := d.GetMachine(ctx, m.Name)
	for method, err := range map[string]error{
		"GetMachine": missing, "DeleteRoute": d.DeleteRoute(ctx, r.ID), "DeleteLoadBalancer": d.DeleteLoadBalancer(ctx, "none"),
	} {
		if !errors.Is(err, conform.ErrNotFound) {
			t.Errorf("%s of a missing object: got error %v, want ErrNotFound", method, err)
		}
	}
	for _, same := range []func(conform.Driver) (any, error){
		func(d conform.Driver) (any, error) { return d.Capabilities(ctx) },
		func(d conform.Driver) (any, error) { return d.Calls(ctx) },
		func(d conform.Driver) (any, error) { all, err := d.ListLoadBalancers(ctx); return len(all), err },
	} {
		got, err := same(d)
		want, wrong := same(cloud)
		if err != nil || wrong != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("over HTTP: got %+v, error %v, want the direct answer %+v, error %v", got, err, want, wrong)
		}
	}
}

type withoutRoutes struct{ *fake.Cloud }

func (withoutRoutes) ListRoutes(context.Context) ([]conform.Route, error) {
	return nil, conform.ErrUnsupported
}

// TestWrongAnswers proves that a method returns an error for each wrong answer of a driver.
func TestWrongAnswers(t *testing.T) {
	if _, err := start(t, httpdriver.Handler(withoutRoutes{fake.NewCloud()})).ListRoutes(t.Context()); !errors.Is(err, conform.ErrUnsupported) {
		t.Errorf("unsupported call: got error %v", err)
	}
	for name, body := range map[string]string{"not JSON": "<html>", "other type": `{"a":1}`, "too long": "[" + strings.Repeat(" ", 17<<20) + "]"} {
		d := start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
		if _, err := d.ListRoutes(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	d := start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	if err := d.ClearFault(t.Context()); err == nil || !strings.Contains(err.Error(), "502") {
		t.Errorf("status 502: got error %v", err)
	}
	for _, at := range []string{"", "cloud", "ftp://a", "http://"} {
		if _, err := httpdriver.New(at); err == nil {
			t.Errorf("New accepts the URL %q", at)
		}
	}
}

func TestUnknownField(t *testing.T) {
	w := httptest.NewRecorder()
	httpdriver.Handler(fake.NewCloud()).ServeHTTP(w, httptest.NewRequest("POST", "/machines", strings.NewReader(`{"nam":"a"}`)))
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "nam") {
		t.Errorf("got status %d, %s; want 400 and the name of the field", w.Code, w.Body)
	}
}

// TestOpenAPI proves that openapi.yaml lists exactly the paths of the handler.
func TestOpenAPI(t *testing.T) {
	raw, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	var described, served []string
	for path, methods := range doc.Paths {
		for method := range methods {
			if method != "parameters" {
				described = append(described, strings.ToUpper(method)+" "+path)
			}
		}
	}
	code, err := os.ReadFile("handler.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?:serve|serveNamed)\("([A-Z]+ /[^"]*)"`).FindAllStringSubmatch(string(code), -1) {
		served = append(served, m[1])
	}
	slices.Sort(described)
	slices.Sort(served)
	if !slices.Equal(described, served) || len(served) == 0 {
		t.Errorf("openapi.yaml has %v\nthe handler has %v", described, served)
	}
}

// TestExec proves that the driver from NewExec returns the answers and errors of its program. It
// also proves that a call returns an error if the output of the program does not end.
func TestExec(t *testing.T) {
	ctx := t.Context()
	d, err := httpdriver.NewExec(`driver() { case "$1 $2" in
		"POST /machines") cat ;;
		"GET /machines/a%20b") echo '{"name":"a b"}' ;;
		"GET /routes") exit 4 ;;
		"GET /calls") yes '[' ;;
		"DELETE /fault") echo '{"token": "it failed"}' >&2; exit 1 ;;
		*) exit 3 ;;
	esac; }; driver`)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := d.CreateMachine(ctx, conform.Machine{Name: `x "y" $z`}); err != nil || m.Name != `x "y" $z` {
		t.Errorf("create: got %+v, %v", m, err)
	}
	if m, err := d.GetMachine(ctx, "a b"); err != nil || m.Name != "a b" {
		t.Errorf("get: got %+v, %v", m, err)
	}
	if _, err := d.GetMachine(ctx, "c"); !errors.Is(err, conform.ErrNotFound) {
		t.Errorf("GetMachine of a missing machine: got error %v, want ErrNotFound", err)
	}
	if _, err := d.ListRoutes(ctx); !errors.Is(err, conform.ErrUnsupported) {
		t.Errorf("ListRoutes of a program without this function: got error %v, want ErrUnsupported", err)
	}
	if err := d.ClearFault(ctx); err == nil || !strings.Contains(err.Error(), "exit status 1") || !strings.Contains(err.Error(), "it failed") {
		t.Errorf("ClearFault of a program that fails: got error %v, want \"exit status 1\" and the output of the program", err)
	}
	hanging, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := d.Calls(hanging); err == nil {
		t.Error("an endless output: no error")
	}
	if _, err := httpdriver.NewExec(" "); err == nil {
		t.Error("NewExec accepts an empty command")
	}
}

// TestExecWithChild proves that a call succeeds although a child process keeps the output of the
// program open.
func TestExecWithChild(t *testing.T) {
	d, err := httpdriver.NewExec(`f() { sleep 3 & echo '{"name":"a","running":true}'; }; f`)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := d.GetMachine(t.Context(), "a"); err != nil || !m.Running {
		t.Errorf("got %+v, %v", m, err)
	}
}

// TestExecEndsChildren proves that the end of a call's context also ends the child processes of the
// shell in which the driver runs its program.
func TestExecEndsChildren(t *testing.T) {
	file := filepath.Join(t.TempDir(), "created")
	d, err := httpdriver.NewExec(`f() { (sleep 1; touch ` + file + `); }; f`)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := d.CreateMachine(ctx, conform.Machine{Name: "a"}); err == nil {
		t.Error("the call succeeded after the end of the context")
	}
	time.Sleep(2 * time.Second)
	if _, err := os.Stat(file); err == nil {
		t.Error("the program has created the machine after the end of the context")
	}
}
