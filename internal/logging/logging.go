// Package logging creates the logger of a process. It also redirects the log of
// Kubernetes' libraries to this logger.
package logging

import (
	"fmt"
	"io"
	"log/slog"

	"k8s.io/klog/v2"
)

// Format is the format of log lines. The default is Text. A Format can be the
// value of a flag: fs.Var(&format, "log-format", …).
type Format string

const (
	Text Format = "text" // key=value, for people
	JSON Format = "json" // one object per line, for programs
)

// Set sets the format from the text of a flag.
func (f *Format) Set(s string) error {
	switch v := Format(s); v {
	case Text, JSON:
		*f = v
		return nil
	}
	return fmt.Errorf("must be text or json, got %q", s)
}

func (f *Format) String() string { return string(*f) }

// Type returns the type of the value for the flag's help.
func (f *Format) Type() string { return "text|json" }

// Level returns LevelDebug if verbose, and LevelInfo otherwise.
func Level(verbose bool) slog.Level {
	if verbose {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// New returns a logger that writes records of at least the given level to w.
func New(w io.Writer, level slog.Leveler, format Format) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == JSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// Klog redirects the log of Kubernetes' libraries to the given logger. A record
// of klog with the verbosity n gets the slog level -n. So verbosity 4
// corresponds to LevelDebug.
//
// Klog sets a global variable and must not run while other code logs through
// klog. A program must call Klog at its start. If the program uses the logs API
// of component-base, call Klog after that API, because that API sets another
// logger.
func Klog(log *slog.Logger) { klog.SetSlogLogger(log) }
