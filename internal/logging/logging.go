// Package logging makes the one logger of a process, and leads the log of
// Kubernetes' libraries into it.
package logging

import (
	"fmt"
	"io"
	"log/slog"

	"k8s.io/klog/v2"
)

// Format is how a log line is written. Its zero value is Text. It is a flag
// value: fs.Var(&format, "log-format", …).
type Format string

const (
	Text Format = "text" // key=value, for people
	JSON Format = "json" // one object per line, for programs
)

// Set reads a format from a flag.
func (f *Format) Set(s string) error {
	switch v := Format(s); v {
	case Text, JSON:
		*f = v
		return nil
	}
	return fmt.Errorf("must be text or json, got %q", s)
}

func (f *Format) String() string { return string(*f) }

// Type is the word that help shows for the value.
func (f *Format) Type() string { return "text|json" }

// Level is what is logged: all that happens, or, verbosely, also what is for who
// debugs.
func Level(verbose bool) slog.Level {
	if verbose {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// New returns a logger that writes to w what is at level or above.
func New(w io.Writer, level slog.Leveler, format Format) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == JSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// Klog leads everything that Kubernetes' libraries log into log. klog's
// verbosity v is slog's level -v, so -v=4 is what slog calls debug.
//
// It sets a global and may not run beside anything that logs through klog:
// call it first, and after component-base's logs API, which puts its own
// logger there.
func Klog(log *slog.Logger) { klog.SetSlogLogger(log) }
