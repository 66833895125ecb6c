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

// What a transcript begins with. It is a file of JSON documents, one a line: a
// TranscriptHead and then a TranscriptCall for each call, in the order in which
// they were answered.
const (
	TranscriptFormat  = "cloudsim-transcript"
	TranscriptVersion = 2
	// MaxTranscriptLine bounds a line, in bytes.
	MaxTranscriptLine = 8 << 20
)

// TranscriptHead says what cloud a transcript was recorded of, and so what
// cloud answers the same calls in the same way.
type TranscriptHead struct {
	Format   string    `json:"format"`
	Version  int       `json:"version"`
	Seed     uint64    `json:"seed"` // 0: the cloud had none
	Profile  string    `json:"profile"`
	Clock    ClockMode `json:"clock"`
	Time     time.Time `json:"time"`     // the cloud's, when it began
	Revision uint64    `json:"revision"` // the journal's, when it began
}

// Exact reports whether times can be compared: on a clock that runs no two
// runs have the same.
func (h TranscriptHead) Exact() bool { return h.Clock == ClockFrozen }

// TranscriptCall is one call and how it was answered. No secret is in it.
type TranscriptCall struct {
	RequestID      string  `json:"requestId"`
	Caller         string  `json:"caller,omitempty"`
	Token          TokenID `json:"token,omitempty"` // "" when the door did not know the caller
	Project        string  `json:"project,omitempty"`
	IdempotencyKey string  `json:"idempotencyKey,omitempty"`
	IfMatch        string  `json:"ifMatch,omitempty"`
	Method         string  `json:"method"`
	Path           string  `json:"path"` // with its query

	Body     json.RawMessage `json:"body,omitempty"`
	Text     string          `json:"text,omitempty"`     // a body that is no JSON
	Withheld string          `json:"withheld,omitempty"` // why there is a body that is not here

	Status int `json:"status"` // 0: the connection was dropped
	// Answer is a hash of the answer and Members of each of its members, for
	// answers that are JSON. Neither is there for one that cannot be compared.
	Answer  string            `json:"answer,omitempty"`
	Members map[string]string `json:"members,omitempty"`
}

// TranscriptFull is the last line of a transcript that reached its bound.
type TranscriptFull struct {
	Full bool `json:"full"`
}

// redacted stands in a transcript for what is secret.
const redacted = "REDACTED"

// secretMember reports whether a member of a document is secret, by its name.
func secretMember(name string) bool {
	name = strings.ToLower(name)
	for _, end := range []string{"secret", "password", "privatekey"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// ofTheMachine are members that tell of the machine and its clock: no two runs
// have the same.
var ofTheMachine = map[string]bool{"aheadSeconds": true, "savedAt": true, "bytes": true, "millis": true}

// Redact is a JSON document without its secrets, and whether it had any. What
// is no JSON comes back as it is.
func Redact(raw []byte) ([]byte, bool) {
	v, err := document(raw)
	if err != nil {
		return raw, false
	}
	if !(scrubbing{times: true}).scrub(v) {
		return raw, false
	}
	clean, err := json.Marshal(v)
	if err != nil {
		return nil, true // never, but the secret must not come back for it
	}
	return clean, true
}

// Digest is what a transcript keeps of an answer: a hash of it without its
// secrets, and of each member; nothing of what is no JSON, such as an exported
// state, which has the cloud's own secrets in it. Without times, it is the same
// for answers that differ in times alone.
func Digest(raw []byte, times bool) (answer string, members map[string]string) {
	v, err := document(raw)
	if err != nil {
		return "", nil
	}
	scrubbing{times: times, compared: true}.scrub(v)
	if m, ok := v.(map[string]any); ok {
		members = map[string]string{}
		for k, one := range m {
			members[k] = hash(one)[:12]
		}
	}
	return hash(v), members
}

func hash(v any) string {
	raw, _ := json.Marshal(v) // of what was JSON; its members are sorted
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
		return nil, Errorf(Invalid, "more than one document")
	}
	return v, nil
}

// scrubbing takes secrets out of a document, and what else it is told to.
type scrubbing struct {
	times    bool // times stay
	compared bool // what tells of the machine goes
}

// scrub changes v in its place, and reports whether it did.
func (s scrubbing) scrub(v any) (changed bool) {
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

func (s scrubbing) value(name string, v any) (is any, changed bool) {
	text, isText := v.(string)
	switch {
	case s.compared && ofTheMachine[name]:
		return nil, true
	case !isText:
		return v, s.scrub(v)
	case text != "" && secretMember(name):
		return redacted, true
	case !s.times:
		if _, err := time.Parse(time.RFC3339Nano, text); err == nil {
			return "TIME", true
		}
	}
	return v, false
}
