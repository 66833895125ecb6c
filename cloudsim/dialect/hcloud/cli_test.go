package hcloud_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommandLine runs the program hcloud of Debian's package hcloud-cli. Debian's version is old,
// and reads some fields that newer versions ignore.
func TestCommandLine(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds, because the program waits half a second for each action")
	}
	cli, err := exec.LookPath("hcloud")
	if err != nil {
		t.Skip("NOT RUN: the program hcloud of Debian's package hcloud-cli is not installed")
	}
	w := start(t)
	w.instance(t, "node-1")
	secret := secretOf(t, w)
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(cli, args...)
		cmd.Env = append(os.Environ(), "HCLOUD_ENDPOINT="+w.url+"/v1", "HCLOUD_TOKEN="+secret, "HOME="+t.TempDir())
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("hcloud %s: %v: %s%s", strings.Join(args, " "), err, &errs, &out)
		}
		return out.String()
	}
	keyFile := filepath.Join(t.TempDir(), "id.pub")
	if err := os.WriteFile(keyFile, []byte(publicKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		command string
		want    []string
	}{
		{"location list", []string{"sim-1a", "sim-1b"}},
		{"datacenter list", []string{"sim-1a-dc1"}},
		{"server-type list", []string{"small", "large"}},
		{"image list", []string{"ubuntu-24.04"}},
		{"load-balancer-type list", []string{"lb11"}},
		{"server list", []string{"node-1", "running", "127.64.0.1"}},
		{"server describe node-1", []string{"Name:", "node-1", "small"}},
		{"ssh-key create --name me --public-key-from-file " + keyFile, []string{"created"}},
		{"ssh-key list", []string{"me"}},
		{"ssh-key describe me", []string{publicKey}},
		{"ssh-key update me --name you", []string{"updated"}},
		{"ssh-key add-label you a=b", []string{"added"}},
		{"placement-group create --name spread --type spread", []string{"created"}},
		{"server create --name worker --type small --image debian-13 --location sim-1b --ssh-key you --placement-group spread --network default", []string{"created"}},
		{"placement-group describe spread", []string{"spread", "Servers:", "ID:"}},
		{"server remove-from-placement-group worker", []string{"removed"}},
		{"server poweroff worker", []string{"stopped"}},
		{"server add-to-placement-group --placement-group spread worker", []string{"added"}},
		{"server describe worker", []string{"Placement Group:", "spread"}},
		{"server-type describe small", []string{"sim-1b", "Hourly"}},
		{"load-balancer-type describe lb11", []string{"sim-1b", "Hourly"}},
		{"server poweron worker", []string{"started"}},
		{"server add-label worker a=b", []string{"added"}},
		{"server list --selector a=b", []string{"worker"}},
		{"volume create --name data --size 10 --server node-1", []string{"created"}},
		{"volume list", []string{"data", "node-1"}},
		{"volume describe data", []string{"scsi-0HC_Volume_1"}},
		{"volume add-label data a=b", []string{"added"}},
		{"volume list --selector a=b", []string{"data"}},
		{"volume remove-label data a", []string{"removed"}},
		{"volume detach data", []string{"detached"}},
		{"volume resize data --size 20", []string{"resized"}},
		{"volume attach data --server node-1", []string{"attached"}},
		{"volume detach data", []string{"detached"}},
		{"volume delete data", []string{"deleted"}},
		{"load-balancer create --name web --type lb11 --location sim-1a", []string{"created"}},
		{"load-balancer add-service web --protocol tcp --listen-port 80 --destination-port 30080", []string{"added"}},
		{"load-balancer add-target web --server node-1", []string{"added"}},
		{"load-balancer list", []string{"web", "lb11"}},
		{"load-balancer describe web", []string{"30080", "node-1"}},
		{"load-balancer remove-target web --server node-1", []string{"removed"}},
		{"load-balancer delete web", []string{"deleted"}},
		{"network create --name n --ip-range 10.30.0.0/16", []string{"created"}},
		{"network add-subnet n --type cloud --network-zone sim-1 --ip-range 10.30.1.0/24", []string{"added"}},
		{"network list", []string{"10.30.0.0/16"}},
		{"network describe n", []string{"10.30.1.0/24"}},
		{"network delete n", []string{"deleted"}},
		{"server delete worker", []string{"deleted"}},
		{"placement-group delete spread", []string{"deleted"}},
		{"ssh-key delete you", []string{"deleted"}},
		{"firewall list", nil}, {"certificate list", nil}, {"floating-ip list", nil}, {"primary-ip list", nil}, {"iso list", nil},
	} {
		out := run(strings.Fields(step.command)...)
		for _, want := range step.want {
			if !strings.Contains(out, want) {
				t.Errorf("hcloud %s prints no %q:\n%s", step.command, want, out)
			}
		}
	}
	if n := w.unsupported.Load(); n != 0 {
		t.Errorf("got %d answers with the status 501, want none", n)
	}
}
