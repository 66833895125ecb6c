package cloudsim

import "time"

// NoticeType is what the cloud is going to do to an instance, whether its
// owner likes it or not.
type NoticeType string

const (
	NoticeMaintenance NoticeType = "maintenance" // it will be rebooted
	NoticePreemption  NoticeType = "preemption"  // it will be terminated
)

// noticeVerbs is what happens to an instance when a notice falls due.
var noticeVerbs = map[NoticeType]Verb{NoticeMaintenance: Reboot, NoticePreemption: Terminate}

// Verb is what happens when a notice of this type falls due; "" for no notice.
func (t NoticeType) Verb() Verb { return noticeVerbs[t] }

// NoticeTypes lists every type, the one that ends an instance first.
func NoticeTypes() []NoticeType { return []NoticeType{NoticePreemption, NoticeMaintenance} }

// Notice says what the cloud is going to do to an instance, and when. The
// instance reads it from its metadata service; at that time it happens, if the
// instance is then in a state for it.
type Notice struct {
	Type        NoticeType `json:"type" enum:"maintenance,preemption" doc:"maintenance reboots the instance, preemption terminates it"`
	At          time.Time  `json:"at" doc:"RFC 3339, on the cloud's clock"`
	AnnouncedAt time.Time  `json:"announcedAt" doc:"RFC 3339, on the cloud's clock"`
}

// maxNotice is how far ahead a notice may be given, in seconds.
const maxNotice = 365 * 24 * 3600

// CreateNotice announces something to an instance. It replaces a notice of the
// same type.
type CreateNotice struct {
	Type      NoticeType `json:"type" enum:"maintenance,preemption" doc:"maintenance reboots the instance, preemption terminates it"`
	InSeconds int64      `json:"inSeconds" minimum:"0" maximum:"31536000" example:"120" doc:"So long from now on the cloud's clock; 0 for at once"`
}

// Validate checks what needs no other state.
func (r CreateNotice) Validate() error {
	var c checks
	c.noticeType("type", r.Type)
	if r.InSeconds < 0 || r.InSeconds > maxNotice {
		c.addf("inSeconds", "must be between 0 and a year, got %d", r.InSeconds)
	}
	return c.err()
}

// Validate checks that there is such a type.
func (t NoticeType) Validate() error {
	var c checks
	c.noticeType("type", t)
	return c.err()
}

func (c *checks) noticeType(field string, t NoticeType) {
	if t.Verb() == "" {
		c.addf(field, "must be maintenance or preemption, got %q", clip(string(t)))
	}
}
