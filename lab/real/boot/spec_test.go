package boot

import (
	"context"
	"log/slog"
	"strings"
	"testing"
)

func testSpec() Spec {
	return Spec{
		Hostname: "node-1", Root: "/somewhere", Dirs: []string{"/etc"}, Binds: []Bind{{From: "/usr", To: "/usr"}},
		Tunables: map[string]string{"/proc/sys/kernel/panic": "10"},
		Programs: []Program{{Name: "p", Path: "/p", Log: "/p.log"}},
	}
}

func TestSpecValidate(t *testing.T) {
	if err := testSpec().Validate(); err != nil {
		t.Fatalf("valid specification: %v", err)
	}
	for want, spoil := range map[string]func(*Spec){
		"hostname":        func(s *Spec) { s.Hostname = "" },
		"root":            func(s *Spec) { s.Root = "relative" },
		"dirs":            func(s *Spec) { s.Dirs[0] = "etc" },
		"binds.from":      func(s *Spec) { s.Binds[0].From = "" },
		"binds.to":        func(s *Spec) { s.Binds[0].To = "usr" },
		"tunables":        func(s *Spec) { s.Tunables["kernel.panic"] = "1" },
		"programs.p.path": func(s *Spec) { s.Programs[0].Path = "p" },
		"programs.p.log":  func(s *Spec) { s.Programs[0].Log = "" },
		"grace":           func(s *Spec) { s.Grace = -1 },
	} {
		s := testSpec()
		spoil(&s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error does not name the problem: %v", want, err)
		}
	}
}

// If the hypervisor dies during the start of a machine, the machine runs no programs.
func TestNothingRunsWithoutGoMessage(t *testing.T) {
	for _, message := range []string{"", "g", "stop"} {
		err := Run(context.Background(), slog.New(slog.DiscardHandler), testSpec(), strings.NewReader(message))
		if err == nil || !strings.Contains(err.Error(), "hypervisor") {
			t.Errorf("message %q from the hypervisor: the boot ended with error %v", message, err)
		}
	}
}
