package logging_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"github.com/cloudsim-dev/allinone/internal/logging"
)

// A record of klog appears once in the logger's format, with its keys. A record
// with a verbosity that the logger's level excludes does not appear.
func TestKlogUsesLoggerFormat(t *testing.T) {
	var out bytes.Buffer
	logging.Klog(logging.New(&out, slog.LevelInfo, logging.JSON))
	defer klog.ClearLogger()
	klog.InfoS("Starting", "controller", "cloud-node")
	klog.V(4).InfoS("chatter")
	klog.Flush()

	var line struct{ Level, Msg, Controller string }
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("record of klog: got %q, want JSON: %v", out.String(), err)
	}
	if line.Level != "INFO" || line.Msg != "Starting" || line.Controller != "cloud-node" {
		t.Errorf("record of klog: got %q, want INFO, Starting and the controller cloud-node", out.String())
	}
}

func TestVerbosityIsLevel(t *testing.T) {
	var fs flag.FlagSet
	klog.InitFlags(&fs)
	if err := fs.Set("v", "4"); err != nil {
		t.Fatal(err)
	}
	defer fs.Set("v", "0")
	var out bytes.Buffer
	logging.Klog(logging.New(&out, slog.Level(-4), logging.Text))
	defer klog.ClearLogger()
	klog.V(4).Info("shown")
	klog.V(5).Info("hidden")
	if s := out.String(); !strings.Contains(s, "msg=shown") || strings.Contains(s, "hidden") {
		t.Errorf("log with the level of V(4): got %q, want only the record of V(4)", s)
	}
}

func TestFormatRefuses(t *testing.T) {
	f := logging.Text
	if err := f.Set("xml"); err == nil || !strings.Contains(err.Error(), `"xml"`) {
		t.Errorf("Set(xml) = %v", err)
	}
	if f != logging.Text {
		t.Errorf("a refused value changed the flag to %q", f)
	}
	if err := f.Set("json"); err != nil || f != logging.JSON {
		t.Errorf("Set(json) = %v, %q", err, f)
	}
}
