package conform

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	// maxEvidence is the maximum number of lines for each kind of evidence in one failure.
	maxEvidence = 200
	// maxLine is the maximum length of one line of evidence in bytes.
	maxLine = 500
	// maxLog is the maximum number of bytes that addEvidence reads from the log for one failure.
	maxLog = 4 << 20
	// evidenceTimeout is the longest time to get the recorded calls of the CCM from the driver.
	evidenceTimeout = 10 * time.Second
)

// addEvidence adds the timeline, the calls of the CCM and the log of the CCM to the result of a
// failed check. It redacts secrets. The names of the check's objects begin with prefix. When the
// check began, the log had the length logStart.
func (s *suite) addEvidence(ctx context.Context, r *Result, prefix string, began time.Time, logStart int64) {
	r.Reason = Redact(r.Reason)
	r.Timeline = truncate(s.seen.timeline(prefix, began))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), evidenceTimeout)
	defer cancel()
	if calls, err := s.driver.Recording(ctx, began); err == nil { // evidence is optional
		for _, c := range calls {
			r.Calls = append(r.Calls, c.line(began))
		}
		r.Calls = truncate(r.Calls)
	}
	if c, ok := s.Subject.(*Command); ok {
		r.Log = truncate(aboutCheck(c.logFrom(logStart), prefix))
	}
}

func (c Call) line(began time.Time) string {
	text := fmt.Sprintf("%+6.1f s  %s", c.At.Sub(began).Seconds(), c.Name)
	if c.Request != "" {
		text += "  " + c.Request
	}
	if c.Body != "" {
		text += "  " + c.Body
	}
	result := c.Result
	if result == "" {
		result = "no answer"
	}
	text += "  → " + result
	if c.Fault != "" {
		text += "  (fault " + string(c.Fault) + ")"
	}
	return text
}

// truncate redacts all lines and shortens long lines. If there are too many lines, truncate omits
// lines in the middle.
func truncate(lines []string) []string {
	if n := len(lines) - maxEvidence; n > 0 {
		half := maxEvidence / 2
		lines = append(append(append([]string{}, lines[:half]...), fmt.Sprintf("… %d lines omitted …", n)), lines[len(lines)-half:]...)
	}
	short := make([]string, len(lines))
	for i, l := range lines {
		l = Redact(l)
		if len(l) > maxLine {
			l = strings.ToValidUTF8(l[:maxLine], "") + "…"
		}
		short[i] = l
	}
	return short
}

// aboutCheck returns the lines of a log that concern a check: lines with the prefix of the check's
// objects, and lines about missing permissions. If no line concerns the check, aboutCheck returns
// all lines.
func aboutCheck(log []byte, prefix string) []string {
	all := strings.Split(strings.TrimSpace(string(log)), "\n")
	var lines []string
	for _, l := range all {
		if strings.Contains(l, prefix) || strings.Contains(l, "forbidden") {
			lines = append(lines, l)
		}
	}
	if len(lines) == 0 && len(log) > 0 {
		return all
	}
	return lines
}

// logSize returns the length of the log of a CCM, or 0 if there is no log.
func logSize(s Subject) int64 {
	if c, ok := s.(*Command); ok {
		if info, err := os.Stat(c.Log); err == nil {
			return info.Size()
		}
	}
	return 0
}

// logFrom returns the part of the log that begins at an offset. If this part is longer than maxLog,
// logFrom returns only the end of the log.
func (c *Command) logFrom(offset int64) []byte {
	f, err := os.Open(c.Log)
	if err != nil {
		return nil // a CCM that has not started has no log
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil {
		offset = max(offset, info.Size()-maxLog)
	}
	var b bytes.Buffer
	_, _ = io.Copy(&b, io.NewSectionReader(f, offset, maxLog)) // evidence is optional
	return b.Bytes()
}
