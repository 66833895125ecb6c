package cloudsim

import "unicode/utf8"

// MaxUserData is the maximum size of the user data of an instance, in bytes.
const MaxUserData = 16 << 10

// UserData is text that the owner of an instance provides. The instance reads the text when
// it starts. The text may contain secrets, so the text is not part of the Instance
// resource. Lists and events must not contain the text, and callers with a read-only role
// must not get the text.
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
