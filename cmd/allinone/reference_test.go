package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cloudsim-dev/allinone/ccm"
	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/httpapi"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/componentcli"
)

//go:generate go test -run TestReference -count=1 . -args -write-reference

var writeReference = flag.Bool("write-reference", false, "write docs/reference instead of comparing with it")

// TestReference proves that the generated pages in docs/reference match the code.
func TestReference(t *testing.T) {
	openapi := openAPIDocument(t)
	for name, want := range map[string][]byte{
		"cli.md":       cliReference(t),
		"api.md":       apiReference(t, openapi),
		"ccm.md":       ccmReference(),
		"openapi.json": openapi,
	} {
		path := filepath.Join("..", "..", "docs", "reference", name)
		if *writeReference {
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, want, 0o644)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, want) {
			t.Errorf("docs/reference/%s is stale (%v): run make generate, and commit it", name, err)
		}
	}
}

// cliReference returns the help of every command as one page.
func cliReference(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("# The command line\n\n`make generate` writes this page from the code. `allinone help COMMAND` shows the same text. It also shows\nthe flags of the parent commands, such as `--cloud-url` of `allinone cloud`.\n")
	var walk func(path []string, cmd *cobra.Command)
	walk = func(path []string, cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			return
		}
		fmt.Fprintf(&b, "\n## %s\n\n", strings.Join(append([]string{"allinone"}, path...), " "))
		if cmd.Name() == "ccm" {
			b.WriteString("Most flags of this command are flags of Kubernetes: see `allinone ccm --help`.\n")
			return
		}
		var out bytes.Buffer
		e := cli.Env{Getenv: func(string) string { return "" }, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out}
		if code := start(t.Context(), e, append(slices.Clone(path), "--help")); code != cli.ExitOK {
			t.Fatalf("%v --help: exit %d: %s", path, code, out.String())
		}
		fmt.Fprintf(&b, "```text\n%s\n```\n", strings.TrimSpace(withoutGlobalFlags(out.String())))
		for _, sub := range cmd.Commands() {
			walk(append(slices.Clone(path), sub.Name()), sub)
		}
	}
	root := newRootCommand(cli.Env{Getenv: func(string) string { return "" }, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard})
	walk(nil, root)
	return b.Bytes()
}

// withoutGlobalFlags removes the global flags from the help of a command, because the help of the
// parent command contains these flags.
func withoutGlobalFlags(help string) string {
	before, flags, ok := strings.Cut(help, "\nGlobal flags:\n")
	if !ok {
		return help
	}
	_, after, _ := strings.Cut(flags, "\n\n")
	return before + after
}

// ccmReference returns a page with the annotations and the flags that this project adds to the
// cloud controller manager.
func ccmReference() []byte {
	var b bytes.Buffer
	b.WriteString("# The cloud controller manager: annotations and flags\n\n`make generate` writes this page from the code. The page [Cloud controller manager](../ccm.md) explains how the CCM works.\n\n" +
		"## Annotations of a Service\n\n| annotation | value | default | effect |\n|---|---|---|---|\n")
	for _, a := range ccm.Annotations() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", a.Key, a.Takes, a.Default, a.Doc)
	}
	b.WriteString("\n## Additional flags\n\nAll other flags are flags of Kubernetes: see `allinone ccm --help`.\n\n| flag | meaning |\n|---|---|\n")
	componentcli.NewCCMCommand(cli.Env{Getenv: func(string) string { return "" }, Stderr: io.Discard}).Flags().VisitAll(func(f *pflag.Flag) {
		if strings.Contains(f.Usage, "in the file of --cloud-config") {
			fmt.Fprintf(&b, "| `--%s` | %s |\n", f.Name, f.Usage)
		}
	})
	return b.Bytes()
}

// openAPIDocument returns the OpenAPI document of a cloud as indented JSON.
func openAPIDocument(t *testing.T) []byte {
	t.Helper()
	st, err := store.Open(filepath.Join(t.TempDir(), "cloud.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	log := slog.New(slog.DiscardHandler)
	h := httpapi.New(log, engine.New(log, st, engine.Default()), httpapi.Config{Version: "v1", Metrics: prometheus.NewRegistry()})
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest("GET", "/openapi.json", nil))
	var b bytes.Buffer
	if err := json.Indent(&b, rec.Body.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	return b.Bytes()
}

func apiReference(t *testing.T, openapi []byte) []byte {
	t.Helper()
	var d struct {
		Paths map[string]map[string]struct {
			OperationID, Summary string
			Tags                 []string
		}
	}
	if err := json.Unmarshal(openapi, &d); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for path, methods := range d.Paths {
		for method, o := range methods {
			rows = append(rows, fmt.Sprintf("| `%s` | `%s %s` | %s |", o.OperationID, strings.ToUpper(method), path, o.Summary))
		}
	}
	slices.Sort(rows)
	var b bytes.Buffer
	fmt.Fprintf(&b, "# The API\n\n`make generate` writes this page from the code. A running cloud describes all operations and their fields at `/docs`. It\nserves the same description as [OpenAPI 3.1](openapi.json) at `/openapi.json`.\n\n| operation | route | description |\n|---|---|---|\n%s\n\n", strings.Join(rows, "\n"))
	fmt.Fprintf(&b, "## Errors\n\nEach error is a document in the format of RFC 9457, with the media type `application/problem+json`. Programs can distinguish\nerrors by the field `kind`.\n\n| kind | exit code of `allinone cloud` |\n|---|---|\n")
	for _, k := range cloudsim.Kinds() {
		fmt.Fprintf(&b, "| `%s` | %d |\n", k, cli.CodeOf(k))
	}
	return b.Bytes()
}
