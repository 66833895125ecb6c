package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/console"
)

func getAnswer[T any](t *testing.T, url, secret string) (status int, answer T) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer
}

// A viewer follows a log from the end of the file. The console answers with complete lines, and
// with at most 64 KiB. After the rotation of the log, the console answers with text of the new
// file.
func TestLog(t *testing.T) {
	t.Parallel()
	cloud := cloudtest.Start(t)
	file := filepath.Join(t.TempDir(), "ccm.log")
	url := startConfig(t, cloud, console.Config{Logs: func() ([]console.Log, error) {
		return []console.Log{{Name: "ccm", Path: file}, {Name: "kubelet", Instance: "i-000001", Path: file}}, nil
	}})
	secret := secretOf(t, cloud)
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	read := func(query string) console.LogText {
		t.Helper()
		status, text := getAnswer[console.LogText](t, url+"/console/logs/ccm"+query, secret)
		if status != http.StatusOK {
			t.Fatalf("log%s: status %d", query, status)
		}
		return text
	}
	expect := func(got console.LogText, text string, skipped bool) int64 {
		t.Helper()
		if got.Text != text || got.Skipped != skipped {
			t.Errorf("log: got %.100q, skipped %v; want %.100q, skipped %v", got.Text, got.Skipped, text, skipped)
		}
		return got.Next
	}
	if status, _ := getAnswer[cloudsim.Problem](t, url+"/console/logs/ccm", secret); status != http.StatusNotFound {
		t.Errorf("a log that no program has written: status %d", status)
	}
	write("one\ntwo\nunfinished")
	at := expect(read(""), "one\ntwo\n", false)
	write(" line\n\xff\n")
	at = expect(read(fmt.Sprint("?after=", at)), "unfinished line\n\uFFFD\n", false)
	at = expect(read(fmt.Sprint("?after=", at)), "", false)
	if status, text := getAnswer[console.LogText](t, fmt.Sprint(url, "/console/logs/i-000001/kubelet?after=", at), secret); status != http.StatusOK || text.Next != at {
		t.Errorf("log of a machine: status %d, %+v", status, text)
	}
	long := strings.Repeat("0123456789abcde\n", 8<<10) // 128 KiB
	write(long)
	at = expect(read(fmt.Sprint("?after=", at)), long[len(long)-(64<<10)+16:], true)
	write(strings.Repeat("x", 100<<10)) // a line that is longer than an answer
	at = expect(read(fmt.Sprint("?after=", at)), "", true)
	write("\nend\n")
	at = expect(read(fmt.Sprint("?after=", at)), "\nend\n", false)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	write("new file\n")
	expect(read(fmt.Sprint("?after=", at)), "new file\n", true)
	for query, want := range map[string]int{"ccm?after=-1": http.StatusBadRequest, "ccm?after=x": http.StatusBadRequest, "etcd": http.StatusNotFound, "i-000001/ccm": http.StatusNotFound} {
		if status, _ := getAnswer[cloudsim.Problem](t, url+"/console/logs/"+query, secret); status != want {
			t.Errorf("log %s: status %d, want %d", query, status, want)
		}
	}
	if status, list := getAnswer[cloudsim.List[console.Log]](t, url+"/console/logs", secret); status != http.StatusOK || len(list.Items) != 2 {
		t.Errorf("list of logs: status %d, %+v", status, list)
	}
	for _, path := range []string{"", "/ccm"} {
		if status, _ := getAnswer[cloudsim.Problem](t, url+"/console/logs"+path, "wrong"); status != http.StatusUnauthorized {
			t.Errorf("logs%s with a wrong token: status %d", path, status)
		}
	}
	if status, _ := getAnswer[cloudsim.Problem](t, url+"/console/logs/ccm", secretOf(t, cloudtest.As(t, cloud, "node", cloudsim.RoleNode))); status != http.StatusForbidden {
		t.Errorf("log with the token of a node: status %d", status)
	}
}

// If a machine replaces its log by a link or by a pipe, the console does not read the target of the
// link and does not wait for the pipe.
func TestLogOfHostileMachine(t *testing.T) {
	t.Parallel()
	cloud := cloudtest.Start(t)
	dir := t.TempDir()
	secretFile, logs := filepath.Join(dir, "admin.token"), filepath.Join(dir, "log")
	if err := os.WriteFile(secretFile, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"absolute": secretFile, "relative": "../admin.token"} {
		if err := os.Symlink(target, filepath.Join(logs, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(logs, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	url := startConfig(t, cloud, console.Config{Logs: func() ([]console.Log, error) {
		return []console.Log{
			{Name: "absolute", Path: filepath.Join(logs, "absolute")}, {Name: "relative", Path: filepath.Join(logs, "relative")},
			{Name: "pipe", Path: filepath.Join(logs, "pipe")}, {Name: "folder", Path: logs},
		}, nil
	}})
	for _, name := range []string{"absolute", "relative", "pipe", "folder"} {
		status, answer := getAnswer[map[string]any](t, url+"/console/logs/"+name, secretOf(t, cloud))
		if status == http.StatusOK || strings.Contains(fmt.Sprint(answer), "secret") {
			t.Errorf("log %s: status %d, %v", name, status, answer)
		}
	}
}
