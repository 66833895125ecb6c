package cloudsim

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"time"
)

// SignatureSkew is the largest permitted difference between the time of a signature and the
// cloud's time. As in AWS, the cloud rejects a signed request if the difference is larger.
const SignatureSkew = 15 * time.Minute

// Signature is the signature of a request to the API of another cloud, in the format of AWS
// Signature Version 4. A dialect is a server that translates requests to that API into calls of
// this cloud. For a signed request, the dialect uses the result of Signature.Token as the bearer
// token of its calls. This cloud verifies the signature. Therefore the dialect needs neither the
// secret of the access key nor permissions.
//
// The bearer token expires at Time plus SignatureSkew. If the signature has a session token that
// expires earlier, the bearer token expires together with the session token. Until it expires, the
// bearer token permits every call that the access key's service account may make. A program that
// reads a signed request can compute the bearer token. Therefore programs must keep signed requests
// as secret as tokens.
type Signature struct {
	AccessKey AccessKeyID
	Time      time.Time // whole seconds
	Region    string
	Service   string
	Hash      string // hex SHA-256 of the canonical request
	Signature string // hex HMAC
	// If the method Token.AccessKey returned the access key, SessionToken is the Secret of
	// that Token. For all other access keys, SessionToken is empty.
	SessionToken string
}

// An error about a signature names one of these fields as invalid. The errors have the kind
// Unauthenticated.
const (
	SignatureKeyField   = "accessKey" // the access key does not exist
	SignatureTimeField  = "time"      // the time differs too much from the cloud's time
	SignatureValueField = "signature" // the signature is wrong

	SignatureSessionField = "sessionToken" // the session token does not exist, or belongs to another access key
	SignatureExpiryField  = "expiresAt"    // the session token has expired
)

// SignatureTime is the format of the time in a signature.
const SignatureTime = "20060102T150405Z"

// signaturePrefix is the beginning of the bearer token of a Signature. Dots separate the parts of
// the token, so a part must not contain a dot.
const signaturePrefix = "sigv4."

var signatureRE = regexp.MustCompile(`^sigv4\.([-a-z0-9]{1,64})\.([0-9]{8}T[0-9]{6}Z)\.([-a-z0-9]{1,64})\.([-a-z0-9]{1,64})\.([0-9a-f]{64})\.([0-9a-f]{64})(?:\.([A-Za-z0-9_]{1,128}))?$`)

// Token returns the bearer token with which a program calls the cloud. If the fields of s
// are valid, ParseSignature converts the token back to s.
func (s Signature) Token() string {
	parts := []string{string(s.AccessKey), s.Time.UTC().Format(SignatureTime), s.Region, s.Service, s.Hash, s.Signature}
	if s.SessionToken != "" {
		parts = append(parts, s.SessionToken)
	}
	return signaturePrefix + strings.Join(parts, ".")
}

// IsSignature reports whether a bearer token begins like the token of a Signature.
func IsSignature(token string) bool { return strings.HasPrefix(token, signaturePrefix) }

// ParseSignature decodes the bearer token of a Signature. It returns false if the text does
// not have the format of this token. It does not verify the signature.
func ParseSignature(token string) (s Signature, ok bool) {
	part := signatureRE.FindStringSubmatch(token)
	if part == nil {
		return s, false
	}
	at, err := time.Parse(SignatureTime, part[2])
	if err != nil {
		return s, false
	}
	return Signature{AccessKey: AccessKeyID(part[1]), Time: at, Region: part[3], Service: part[4], Hash: part[5], Signature: part[6], SessionToken: part[7]}, true
}

// Sign computes the signature of the request that s describes, with the secret of the access key.
// The result is a hexadecimal HMAC. Sign ignores the field Signature. See "Create a signed AWS API
// request" in the user guide of AWS Identity and Access Management.
func (s Signature) Sign(secret string) string {
	at := s.Time.UTC().Format(SignatureTime)
	date := at[:len("20060102")]
	key := []byte("AWS4" + secret)
	for _, part := range []string{date, s.Region, s.Service, "aws4_request"} {
		key = hmacSHA256(key, part)
	}
	scope := strings.Join([]string{date, s.Region, s.Service, "aws4_request"}, "/")
	return hex.EncodeToString(hmacSHA256(key, strings.Join([]string{"AWS4-HMAC-SHA256", at, scope, s.Hash}, "\n")))
}

func hmacSHA256(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write([]byte(text)) // never fails
	return h.Sum(nil)
}
