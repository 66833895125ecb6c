package cloudsim

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"strings"
	"time"
)

// A transcript is a file with the calls to a cloud, one JSON document per line. The first line is a
// TranscriptHead, which contains TranscriptFormat and TranscriptVersion. After this line, the
// transcript contains a TranscriptCall for each call, in the order of the answers.
const (
	TranscriptFormat  = "cloudsim-transcript"
	TranscriptVersion = 2
	// MaxTranscriptLine is the largest length of a line, in bytes.
	MaxTranscriptLine = 8 << 20
)

// TranscriptHead describes the recorded cloud at the start of the recording. A replay gives
// the same answers only on a cloud with the same seed, profile and state.
type TranscriptHead struct {
	Format   string    `json:"format"`
	Version  int       `json:"version"`
	Seed     uint64    `json:"seed"` // 0: the cloud had no seed
	Profile  string    `json:"profile"`
	Clock    ClockMode `json:"clock"`
	Time     time.Time `json:"time"`     // the cloud's time at the start of the recording
	Revision uint64    `json:"revision"` // the journal's revision at the start of the recording
}

// Exact reports whether a replay of the transcript can compare times. The result is true
// only for a frozen clock, because a running clock shows different times in every run.
func (h TranscriptHead) Exact() bool { return h.Clock == ClockFrozen }

// TranscriptCall is one call with its answer. It contains the user data of instances, because a
// replay needs the user data. The user data may contain secrets. TranscriptCall contains no other
// secrets.
type TranscriptCall struct {
	RequestID      string  `json:"requestId"`
	Caller         string  `json:"caller,omitempty"`
	Token          TokenID `json:"token,omitempty"` // "" if the caller has no token of the cloud, or is not known
	Project        string  `json:"project,omitempty"`
	IdempotencyKey string  `json:"idempotencyKey,omitempty"`
	IfMatch        string  `json:"ifMatch,omitempty"`
	DialectCall    string  `json:"dialectCall,omitempty"` // call of another cloud's API that a dialect translated to this call
	Method         string  `json:"method"`
	Path           string  `json:"path"` // including the query

	Body     json.RawMessage `json:"body,omitempty"`
	Text     string          `json:"text,omitempty"`     // a body that is not JSON
	Withheld string          `json:"withheld,omitempty"` // the reason why the body is left out

	Status int `json:"status"` // 0: the cloud closed the connection without an answer
	// Answer is a hash of a JSON answer. Members contains a hash of each member
	// of the answer. Both fields are absent if a replay cannot compare the
	// answer.
	Answer  string            `json:"answer,omitempty"`
	Members map[string]string `json:"members,omitempty"`
}

// TranscriptFull is the last line of a transcript that reached its size limit.
type TranscriptFull struct {
	Full bool `json:"full"`
}

// redactedText replaces secrets in a transcript.
const redactedText = "REDACTED"

// secretMember reports whether a JSON member with this name contains a secret.
func secretMember(name string) bool {
	name = strings.ToLower(name)
	for _, end := range []string{"secret", "password", "privatekey"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// ofTheMachine contains the names of the JSON members with values that depend on the
// machine. These values differ in every run.
var ofTheMachine = map[string]bool{"aheadSeconds": true, "savedAt": true, "bytes": true, "millis": true, "number": true, "last": true}

// Redact returns a JSON document without its secrets. It also reports whether the document
// contained secrets. If raw is not exactly one JSON document, Redact returns raw itself.
func Redact(raw []byte) ([]byte, bool) {
	v, err := document(raw)
	if err != nil {
		return raw, false
	}
	if !(scrubber{times: true}).scrub(v) {
		return raw, false
	}
	clean, err := json.Marshal(v)
	if err != nil {
		return nil, true // cannot happen; return nil, because raw contains a secret
	}
	return clean, true
}

// Digest returns the hashes of an answer for a transcript: a hash of the whole answer, and a
// hash of each member. The hashes do not depend on secrets. For an answer that is not JSON,
// e.g. an exported state, Digest cannot find the secrets, and returns no hashes. If the
// parameter times is false, answers that differ only in their times have the same hash.
func Digest(raw []byte, times bool) (answer string, members map[string]string) {
	v, err := document(raw)
	if err != nil {
		return "", nil
	}
	scrubber{times: times, compared: true}.scrub(v)
	if m, ok := v.(map[string]any); ok {
		members = map[string]string{}
		for k, one := range m {
			members[k] = hash(one)[:12]
		}
	}
	return hash(v), members
}

func hash(v any) string {
	raw, _ := json.Marshal(v) // Marshal cannot fail, because v was decoded from JSON; it sorts the members
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

func document(raw []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, Errorf(Invalid, "more than one JSON document")
	}
	return v, nil
}

// A scrubber removes secrets from a JSON document.
type scrubber struct {
	times    bool // if false, remove times
	compared bool // if true, remove the members in ofTheMachine
}

// scrub changes v in place and reports whether it changed anything.
func (s scrubber) scrub(v any) (changed bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, one := range v {
			is, did := s.value(k, one)
			v[k], changed = is, changed || did
		}
	case []any:
		for n, one := range v {
			is, did := s.value("", one)
			v[n], changed = is, changed || did
		}
	}
	return changed
}

func (s scrubber) value(name string, v any) (is any, changed bool) {
	text, isText := v.(string)
	switch {
	case s.compared && ofTheMachine[name]:
		return nil, true
	case !isText:
		return v, s.scrub(v)
	case text != "" && secretMember(name):
		return redactedText, true
	case !s.times:
		if _, err := time.Parse(time.RFC3339Nano, text); err == nil {
			return "TIME", true
		}
	}
	return v, false
}
