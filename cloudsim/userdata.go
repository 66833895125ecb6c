package cloudsim

import "unicode/utf8"

// MaxUserData bounds the user data of an instance, in bytes.
const MaxUserData = 16 << 10

// UserData is text that the owner of an instance provides. The instance reads
// the text when it starts. It is not part of the Instance resource, because it
// may contain secrets: lists, events and read-only callers must not see it.
type UserData struct {
	UserData string `json:"userData" doc:"User data as in the request; empty if there is none"`
}

func (c *checks) userData(s string) {
	switch {
	case len(s) > MaxUserData:
		c.addf("userData", "must be at most %d bytes, got %d", MaxUserData, len(s))
	case !utf8.ValidString(s): // JSON encoding would replace invalid bytes silently
		c.addf("userData", "must be UTF-8 text: encode binary data, such as gzip, in base64")
	}
}
