package process

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/lab"
)

// A fault can make the setup of the cloud fail. If this happens at the first start of a lab, the
// start fails, because the components have no tokens yet. At a later start, the components have
// tokens. So the lab starts although the setup fails, and the user can delete the fault.
func TestSeedWithFault(t *testing.T) {
	cloud := cloudtest.Start(t)
	at, err := url.Parse(cloud.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		t.Fatal(err)
	}
	secret, err := cloud.Token()
	if err != nil {
		t.Fatal(err)
	}
	var messages []string
	p := &plan{
		Config: Config{Nodes: lab.Hollow, Dialects: []string{"aws"}}, dir: Dir(t.TempDir()), ports: portsByName{"cloudsim": port},
		say: func(format string, args ...any) { messages = append(messages, fmt.Sprintf(format, args...)) },
	}
	if err := os.MkdirAll(filepath.Dir(p.dir.AdminToken()), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.dir.AdminToken(), []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = cloud.CreateFault(t.Context(), cloudsim.CreateFault{Name: "cloud-down", FaultSpec: cloudsim.FaultSpec{
		Match: cloudsim.FaultMatch{Operation: "*"}, Effect: cloudsim.FaultEffect{Type: cloudsim.FaultError},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.seedCloud(t.Context()); err == nil {
		t.Error("first start with a fault: got no error")
	}
	if err := p.dir.writeMemory(memory{Seeded: true}); err != nil {
		t.Fatal(err)
	}
	if err := p.seedCloud(t.Context()); err != nil {
		t.Errorf("later start with a fault: %v", err)
	}
	if len(messages) != 1 || !strings.Contains(messages[0], "service account of the dialect aws") {
		t.Errorf("messages to the user: got %q, want one message with the error", messages)
	}
}
