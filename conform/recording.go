package conform

import (
	"context"
	"regexp"
	"time"
)

// Recorder is an optional interface of a driver. If a driver implements Recorder, the report of a
// failed check shows the calls of the CCM beside the Nodes and Services.
type Recorder interface {
	// Recording returns the calls of the CCM that began after the given time, in the order of their
	// start. It may omit the oldest calls. It returns ErrUnsupported if the driver does not record
	// calls.
	Recording(ctx context.Context, after time.Time) ([]Call, error)
}

// Call is one call of the CCM to the cloud. It contains no secret.
type Call struct {
	At   time.Time `json:"at"`
	Name string    `json:"name"`
	// Request is the path with the query, or another description of the arguments.
	Request string `json:"request,omitempty"`
	// Body is the body of a call that changes the cloud. It is empty for all other calls.
	Body string `json:"body,omitempty"`
	// Result is the status or the error of the answer. It is empty if the caller got no answer.
	Result string `json:"result,omitempty"`
	// Fault is the kind of the injected fault that changed the call. The package cloudsimdriver
	// stores the ID of the fault instead.
	Fault FaultKind     `json:"fault,omitempty"`
	Took  time.Duration `json:"tookNanoseconds,omitempty"`
}

// WithFaults returns a driver that uses d for machines and networks. The returned driver uses f to
// inject faults, and to count and record calls. For example, f can be a recording proxy in front of
// the cloud's API. The argument kinds lists the faults that f can inject.
func WithFaults(d Driver, f Faults, kinds ...FaultKind) Driver {
	return withFaults{Machines: d, Network: d, Faults: f, driver: d, kinds: kinds}
}

type withFaults struct {
	Machines
	Network
	Faults
	driver Driver
	kinds  []FaultKind
}

// Capabilities implements Driver.
func (d withFaults) Capabilities(ctx context.Context) (Capabilities, error) {
	c, err := d.driver.Capabilities(ctx)
	c.Faults, c.Calls = d.kinds, true
	return c, err
}

// Recording implements Recorder.
func (d withFaults) Recording(ctx context.Context, after time.Time) ([]Call, error) {
	return recordingOf(ctx, d.Faults, after)
}

func recordingOf(ctx context.Context, driver any, after time.Time) ([]Call, error) {
	if r, ok := driver.(Recorder); ok {
		return r.Recording(ctx, after)
	}
	return nil, ErrUnsupported
}

const redacted = "REDACTED"

// secretPatterns find secrets in headers, queries, JSON and log lines. The first group of each
// pattern matches the text before the secret.
var secretPatterns = []*regexp.Regexp{
	regexp.MustCompile(`(?i)(\b(?:authorization|proxy-authorization|(?:set-)?cookie|x-auth-token|x-subject-token|x-amz-security-token)["']?\s*[:=]\s*["'\[]*)[^"'\]\r\n]+`),
	regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}`),
	regexp.MustCompile(`(?i)([?&;](?:[a-z0-9_-]*(?:signature|token|secret|password|credential|api_?key)|sig)=)[^&;\s"']+`),
	regexp.MustCompile(`(?i)("[^"]*(?:password|passwd|secret|token|credential|private_?key|api_?key|user_?data)[^"]*"\s*:\s*)"(?:[^"\\]|\\.)*"?`),
	regexp.MustCompile(`(?i)(\\"[^"]*(?:password|passwd|secret|token|credential|private_?key|api_?key|user_?data)[^"]*\\"\s*:\s*)\\"(?:[^"\\]|\\\\(?:\\.|[^\\]))*(?:\\")?`), // JSON in a quoted text
	regexp.MustCompile(`(?i)(\b[a-z0-9_-]*(?:token|password|secret)=)"(?:[^"\\]|\\.)*"?`),                                                                                   // the format of klog and slog
	regexp.MustCompile(`(?i)(\b[a-z0-9_-]*(?:token|password|secret)=)[^&;\s"']+`),
}

// Redact replaces tokens, passwords, cookies and signatures in a text. The text may be a header, a
// query, JSON or lines of a log.
func Redact(text string) string {
	for _, s := range secretPatterns {
		text = s.ReplaceAllString(text, "${1}"+redacted)
	}
	return text
}
