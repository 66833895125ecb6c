package cloudsim

import (
	"encoding/json"
	"unicode"
	"unicode/utf8"
)

// RecordID names a record, e.g. "rec-000001".
type RecordID string

// KindRecord is the kind of resource in events about records.
const KindRecord ResourceKind = "record"

// Limits of a record.
const (
	MaxRecordName     = 255
	MaxRecordDocument = 64 << 10 // bytes of JSON text
)

// Record stores a JSON document for a client. The cloud does not interpret the
// document. For example, a program that serves the API of another cloud can
// store security groups in records, because this cloud has no security groups.
type Record struct {
	ID RecordID `json:"id" example:"rec-000001"`
	Meta
	Kind     string          `json:"kind" doc:"Kind of the described object. The client chooses the kind. Two records of the same project and kind have different names" example:"security-group"`
	Document json.RawMessage `json:"document" doc:"JSON document of any JSON type. The cloud may change the white space and the escape sequences of the document"`
}

// RecordKind returns the kind of the record. The field Kind of ListOptions selects records
// by this kind.
func (r Record) RecordKind() string { return r.Kind }

// CreateRecord requests a record. The call is idempotent: the same request with
// the same kind and name returns the existing record. A different request with
// the same kind and name returns Exists.
type CreateRecord struct {
	Name     string            `json:"name" minLength:"1" maxLength:"255" doc:"Printable text. Unlike the names of other resources, the name of a record may contain capital letters and spaces" example:"Web servers"`
	Labels   map[string]string `json:"labels,omitempty"`
	Kind     string            `json:"kind" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" doc:"Kind of the described object. The client chooses the kind. The kind of a record never changes" example:"security-group"`
	Document json.RawMessage   `json:"document" doc:"JSON document of any JSON type, at most 64 KiB"`
}

// UpdateRecord replaces the labels and the document of a record. If Name is not empty, the
// update also changes the record's name.
type UpdateRecord struct {
	Name     string            `json:"name,omitempty" maxLength:"255" doc:"New name; absent for no change" example:"Web servers"`
	Labels   map[string]string `json:"labels,omitempty"`
	Document json.RawMessage   `json:"document" doc:"JSON document of any JSON type, at most 64 KiB"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateRecord) Validate() error {
	var c checks
	c.recordName(r.Name)
	c.labels(r.Labels)
	c.name("kind", r.Kind)
	c.document(r.Document)
	return c.err()
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r UpdateRecord) Validate() error {
	var c checks
	if r.Name != "" {
		c.recordName(r.Name)
	}
	c.labels(r.Labels)
	c.document(r.Document)
	return c.err()
}

func (c *checks) recordName(s string) {
	switch {
	case s == "":
		c.addf("name", "is required")
	case len(s) > MaxRecordName || !utf8.ValidString(s) || !printable(s):
		c.addf("name", "must be printable UTF-8 text of at most %d bytes; got %q", MaxRecordName, Clip(s))
	}
}

func printable(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

func (c *checks) document(raw json.RawMessage) {
	switch {
	case len(raw) == 0:
		c.addf("document", "is required")
	case len(raw) > MaxRecordDocument:
		c.addf("document", "must be at most %d bytes of JSON, got %d: split it into several records", MaxRecordDocument, len(raw))
	case !json.Valid(raw) || !utf8.Valid(raw):
		c.addf("document", "must be one JSON value in UTF-8")
	}
}
