package credprovider

import "fmt"

// Code is a class of failure. Scripts and people look for it in the kubelet's
// log: codes do not change.
type Code string

// The codes.
const (
	CodeConfig   Code = "E_CONFIG"   // the plugin's configuration is wrong
	CodeInput    Code = "E_INPUT"    // what came on standard input is no request
	CodeVersion  Code = "E_VERSION"  // a request of another version or kind
	CodeImage    Code = "E_IMAGE"    // the image names no registry
	CodeHost     Code = "E_HOST"     // a registry that the plugin does not answer for
	CodeMetadata Code = "E_METADATA" // the metadata service does not say who this node is
	CodeDenied   Code = "E_DENIED"   // the cloud refuses this identity
	CodeCloud    Code = "E_CLOUD"    // the cloud does not answer
	CodeExpired  Code = "E_EXPIRED"  // the credential is over before it can be used
	CodeOutput   Code = "E_OUTPUT"   // the answer could not be written
)

// Error is a failure in one line, without secrets.
type Error struct {
	Code Code
	Msg  string
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Msg }

func fault(code Code, format string, args ...any) error {
	return &Error{code, fmt.Sprintf(format, args...)}
}
