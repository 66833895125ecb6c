package cloudsim

import "strings"

// AccessKeyID names an access key, e.g. "ak-000001". It is not secret. A signed
// request contains it.
type AccessKeyID string

// KindAccessKey is the kind of access keys in events.
const KindAccessKey ResourceKind = "accessKey"

// AccessKey lets a program sign requests as a service account, with AWS
// Signature Version 4. The cloud shows the secret once, in the answer to the
// creation.
//
// The cloud stores the secret itself and not a hash, because both sides derive
// the same key from the secret. A hash would also be enough to sign requests.
// So the file of the cloud, and its saved states, have the mode 0600.
type AccessKey struct {
	ID AccessKeyID `json:"id" example:"ak-000001"`
	Meta
	ServiceAccount ServiceAccountID `json:"serviceAccount" doc:"Service account that signs with the key" example:"sa-000001"`
	StoredSecret   string           `json:"storedSecret,omitempty" hidden:"true"` // never leaves the engine
	Secret         string           `json:"secret,omitempty" doc:"Secret that signs requests. Only the response to the creation contains it"`
}

// CreateAccessKey requests an access key. The call is not idempotent, because
// the secret is shown only once. It returns Exists if another access key has the
// name.
type CreateAccessKey struct {
	Name           string `json:"name,omitempty" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"ccm" doc:"Name of the access key; the default is its id"`
	ServiceAccount string `json:"serviceAccount" minLength:"1" maxLength:"128" example:"ccm" doc:"Service account (id or name) that signs with the key"`
}

// Validate checks the request without the cloud's state. It returns an Invalid
// error that names the invalid fields.
func (r CreateAccessKey) Validate() error {
	var c checks
	if r.Name != "" {
		c.name("name", r.Name)
	}
	c.reference("serviceAccount", r.ServiceAccount)
	return c.err()
}

// CredentialsFile returns a shared credentials file of AWS's programs, with the
// key's id and its Secret. The environment variable AWS_SHARED_CREDENTIALS_FILE
// contains the path of such a file.
func (k AccessKey) CredentialsFile() string {
	return "[default]\naws_access_key_id = " + string(k.ID) + "\naws_secret_access_key = " + k.Secret + "\n"
}

// ParseCredentialsFile returns the ID and the Secret in a credentials file. It returns empty
// values if the text has no such lines.
func ParseCredentialsFile(text string) (k AccessKey) {
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, "=")
		switch value = strings.TrimSpace(value); strings.TrimSpace(name) {
		case "aws_access_key_id":
			k.ID = AccessKeyID(value)
		case "aws_secret_access_key":
			k.Secret = value
		}
	}
	return k
}
