package cloudsim

import "time"

// NoticeType is a kind of action that the cloud announces to an instance. The
// owner of the instance cannot prevent the action.
type NoticeType string

const (
	NoticeMaintenance NoticeType = "maintenance" // the cloud will reboot the instance
	NoticePreemption  NoticeType = "preemption"  // the cloud will terminate the instance
)

var noticeVerbs = map[NoticeType]Verb{NoticeMaintenance: Reboot, NoticePreemption: Terminate}

// Verb returns the verb that the cloud applies when a notice of this type is
// due. It returns "" for an unknown type.
func (t NoticeType) Verb() Verb { return noticeVerbs[t] }

// NoticeTypes lists every type. The most severe type is the first item.
func NoticeTypes() []NoticeType { return []NoticeType{NoticePreemption, NoticeMaintenance} }

// Notice announces that the cloud will perform an action on an instance at the time At. The
// instance reads the notice from its metadata service. If the state of the instance permits the
// action at this time, the cloud performs the action. Otherwise the cloud only removes the notice.
type Notice struct {
	Type        NoticeType `json:"type" enum:"maintenance,preemption" doc:"maintenance reboots the instance, preemption terminates it"`
	At          time.Time  `json:"at" doc:"Time of the reboot or termination; RFC 3339, on the cloud's clock"`
	AnnouncedAt time.Time  `json:"announcedAt" doc:"Time of the announcement; RFC 3339, on the cloud's clock"`
}

// maxNotice is the longest time between an announcement and the action, in
// seconds.
const maxNotice = 365 * 24 * 3600

// CreateNotice announces an action to an instance. A new notice replaces an
// existing notice of the same type.
type CreateNotice struct {
	Type      NoticeType `json:"type" enum:"maintenance,preemption" doc:"maintenance reboots the instance, preemption terminates it"`
	InSeconds int64      `json:"inSeconds" minimum:"0" maximum:"31536000" example:"120" doc:"Seconds from now until the action, on the cloud's clock; 0 for at once"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateNotice) Validate() error {
	var c checks
	c.noticeType("type", r.Type)
	if r.InSeconds < 0 || r.InSeconds > maxNotice {
		c.addf("inSeconds", "must be between 0 and %d seconds (a year), got %d", maxNotice, r.InSeconds)
	}
	return c.err()
}

// Validate returns Invalid if the type is unknown.
func (t NoticeType) Validate() error {
	var c checks
	c.noticeType("type", t)
	return c.err()
}

func (c *checks) noticeType(field string, t NoticeType) {
	if t.Verb() == "" {
		c.addf(field, "must be maintenance or preemption, got %q", Clip(string(t)))
	}
}
