package credprovider

import "fmt"

// Code identifies a class of errors. Scripts and people search for these codes
// in the kubelet's log, so the codes never change.
type Code string

// These are the error codes.
const (
	CodeConfig   Code = "E_CONFIG"   // the plugin's configuration is invalid
	CodeInput    Code = "E_INPUT"    // standard input contains no valid request
	CodeVersion  Code = "E_VERSION"  // the version or the kind of the request is not supported
	CodeImage    Code = "E_IMAGE"    // the image name contains no registry
	CodeHost     Code = "E_HOST"     // the plugin is not configured for this registry
	CodeMetadata Code = "E_METADATA" // the metadata service returns no token for this node
	CodeDenied   Code = "E_DENIED"   // the cloud refuses this identity
	CodeCloud    Code = "E_CLOUD"    // the cloud does not answer, or has an internal error
	CodeExpired  Code = "E_EXPIRED"  // the credential expires too early for a pull
	CodeOutput   Code = "E_OUTPUT"   // the plugin cannot write its answer
)

// Error is an error of the plugin. Its text is one line and contains no
// secrets.
type Error struct {
	Code Code
	Msg  string
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Msg }

func fault(code Code, format string, args ...any) error {
	return &Error{code, fmt.Sprintf(format, args...)}
}
