package labcli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/lab/process"
)

// TestDetachedErrors proves that 'allinone up --detach' prints the same errors as 'allinone up'
// in the foreground.
func TestDetachedErrors(t *testing.T) {
	failed := errors.Join(errors.New("etcd does not start; its log ends:\nno\nroom"), errors.New("no"))
	var pipe, got, want bytes.Buffer
	detachedReporter{out: json.NewEncoder(&pipe)}.failed(failed)
	_, err := listen(t.Context(), &pipe, io.Discard)
	cli.Explain(&got, "cmd", err)
	cli.Explain(&want, "cmd", failed)
	if d := cmp.Diff(want.String(), got.String()); d != "" {
		t.Error(d)
	}
}

// TestDetachedUnready proves that 'allinone up --detach' returns an error if some nodes are not
// Ready. The error contains the number of Ready nodes, and the reason why the other nodes are not
// Ready.
func TestDetachedUnready(t *testing.T) {
	for _, tc := range []struct {
		nodes process.NodesReport
		want  string
	}{
		{process.NodesReport{Ready: 3, Total: 3}, ""},
		{process.NodesReport{Ready: 1, Total: 3, NotReady: []process.NotReady{{Reason: "the condition Ready is Unknown: NodeStatusUnknown", Count: 2, Examples: []string{"node-2", "node-3"}}}},
			"1 of 3 nodes are Ready; not Ready: 2 × the condition Ready is Unknown: NodeStatusUnknown (node-2, node-3)"},
		{process.NodesReport{Error: "no route to host"}, "it is unknown which nodes are Ready: no route to host"},
	} {
		var pipe, output bytes.Buffer
		detachedReporter{out: json.NewEncoder(&pipe), pipe: io.NopCloser(&pipe)}.ready(t.Context(), process.Report{Machines: &tc.nodes})
		report, err := listen(t.Context(), &pipe, &output)
		if err != nil {
			t.Fatal(err)
		}
		err = unreadyNodes(report)
		if tc.want == "" {
			if err != nil || !strings.Contains(output.String(), "The lab is ready.") {
				t.Errorf("lab with all nodes Ready: got error %v and output %q, want no error and \"The lab is ready.\"", err, output.String())
			}
			continue
		}
		if !errors.Is(err, cloudsim.Unavailable) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(output.String(), tc.want) || strings.Contains(output.String(), "The lab is ready.") {
			t.Errorf("error %v, output:\n%s\nwant %q in both", err, output.String(), tc.want)
		}
	}
}
