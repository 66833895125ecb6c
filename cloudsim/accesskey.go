package cloudsim

import "strings"

// AccessKeyID names an access key, e.g. "ak-000001". The id is not secret: each signed
// request contains it.
type AccessKeyID string

// KindAccessKey is the kind of resource in events about access keys.
const KindAccessKey ResourceKind = "accessKey"

// AccessKey lets a program sign requests as a service account, with AWS Signature Version
// 4. The cloud returns the secret only once, in the answer to the request that creates
// the key.
//
// The cloud stores the secret in plain text, because the cloud needs the secret to verify a
// signature. Therefore the data file and the saved states of the cloud have the file mode
// 0600.
type AccessKey struct {
	ID AccessKeyID `json:"id" example:"ak-000001"`
	Meta
	ServiceAccount ServiceAccountID `json:"serviceAccount" doc:"Service account that signs with the key" example:"sa-000001"`
	StoredSecret   string           `json:"storedSecret,omitempty" hidden:"true"` // the API never returns this field
	Secret         string           `json:"secret,omitempty" doc:"Secret that signs requests. Only the response to the creation contains it"`
}

// CreateAccessKey requests an access key. The call is not idempotent, because the cloud
// returns the secret only once. The call returns Exists if another access key has the
// same name.
type CreateAccessKey struct {
	Name           string `json:"name,omitempty" pattern:"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" maxLength:"63" example:"ccm" doc:"Name of the access key; the default is its id"`
	ServiceAccount string `json:"serviceAccount" minLength:"1" maxLength:"128" example:"ccm" doc:"Service account (id or name) that signs with the key"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r CreateAccessKey) Validate() error {
	var c checks
	if r.Name != "" {
		c.name("name", r.Name)
	}
	c.reference("serviceAccount", r.ServiceAccount)
	return c.err()
}

// CredentialsFile returns the text of a shared credentials file for the AWS CLI and the AWS
// SDKs. The file contains the ID and the Secret of k. The AWS CLI and the AWS SDKs read the
// path of this file from the environment variable AWS_SHARED_CREDENTIALS_FILE.
func (k AccessKey) CredentialsFile() string {
	return "[default]\naws_access_key_id = " + string(k.ID) + "\naws_secret_access_key = " + k.Secret + "\n"
}

// ParseCredentialsFile reads the ID and the Secret from the text of a shared credentials
// file. It reads the profile [default], and ignores other profiles. If this profile lacks a
// value, the field of k is empty. If the profile contains a value twice, the last value counts.
func ParseCredentialsFile(text string) (k AccessKey) {
	isDefault := false
	for line := range strings.Lines(text) {
		if header, ok := strings.CutPrefix(strings.TrimSpace(line), "["); ok {
			profile, _, _ := strings.Cut(header, "]")
			isDefault = strings.TrimSpace(profile) == "default"
		}
		if !isDefault {
			continue
		}
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
