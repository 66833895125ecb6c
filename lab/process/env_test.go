package process

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestEnvScriptIsSafeInAShell(t *testing.T) {
	dir := Dir(t.TempDir() + "/it's a $(false) \"dir\"")
	if err := os.Mkdir(string(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir.EnvFile(), []byte(envScript(dir, "http://127.0.0.1:8180")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("sh", "-c", `. "$1"; printf '%s\n' "$KUBECONFIG" "$CLOUDSIM_URL" "$CLOUDSIM_TOKEN_FILE" "$CLOUDSIM_DATA_DIR" "${PATH%%:*}"`, "sh", dir.EnvFile()).CombinedOutput()
	if err != nil {
		t.Fatalf("sh: %v: %s", err, out)
	}
	want := strings.Join([]string{dir.Kubeconfig(), "http://127.0.0.1:8180", dir.AdminToken(), string(dir), dir.Bin(), ""}, "\n")
	if string(out) != want {
		t.Errorf("variables: got\n%swant\n%s", out, want)
	}
}
