package cloudsim

import "unicode/utf8"

// MaxUserData bounds the user data of an instance, in bytes.
const MaxUserData = 16 << 10

// UserData is what an instance's owner left for it to read when it starts. It
// is no part of the instance's record, because it may hold secrets: lists,
// events and viewers do not see it.
type UserData struct {
	UserData string `json:"userData" doc:"As it was given; empty if there is none"`
}

func (c *checks) userData(s string) {
	switch {
	case len(s) > MaxUserData:
		c.addf("userData", "must be at most %d bytes, got %d", MaxUserData, len(s))
	case !utf8.ValidString(s): // JSON would change it without a word
		c.addf("userData", "must be UTF-8 text: encode what is binary, such as gzip, in base64")
	}
}
