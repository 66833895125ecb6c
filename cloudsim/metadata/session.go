package metadata

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strconv"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// These constants define the HTTP interface of a session. The caller sends PUT with the wanted
// lifetime, and the reply contains a token. The caller must send this token with every GET.
const (
	tokenPath   = "/v1/token"
	ttlHeader   = "Metadata-Token-TTL-Seconds"
	tokenHeader = "Metadata-Token"
	minTTL      = 1
	maxTTL      = 6 * 3600
)

// ownSession describes the sessions for the paths that begin with /v1/.
var ownSession = cloudsim.MetadataSession{Path: tokenPath, TTLHeader: ttlHeader, TokenHeader: tokenHeader}

// sessionIssuer makes and checks session tokens. A token consists of its expiry time and a message
// authentication code (MAC) for this time and the instance. A token is valid for /v1/ and for all
// metadata trees. The service stores no tokens. It stores only the key of the MAC, in memory. After
// a restart of the service, every instance therefore needs a new token.
type sessionIssuer struct {
	key [32]byte
	now func() time.Time
}

func newSessions() *sessionIssuer {
	s := &sessionIssuer{now: time.Now}
	_, _ = rand.Read(s.key[:]) // never fails: crypto/rand ends the process instead
	return s
}

func (s *service) startSession(w http.ResponseWriter, r *http.Request, id cloudsim.InstanceID, of cloudsim.MetadataSession) error {
	if r.Method != http.MethodPut {
		w.Header().Set("Allow", http.MethodPut)
		return &httpError{http.StatusMethodNotAllowed, of.Path + " supports only PUT"}
	}
	ttl, err := strconv.Atoi(r.Header.Get(of.TTLHeader))
	if err != nil || ttl < minTTL || ttl > maxTTL {
		return &httpError{http.StatusBadRequest, of.TTLHeader + " must be between 1 and 21600"}
	}
	w.Header().Set(of.TTLHeader, strconv.Itoa(ttl))
	return writeAnswer(w, s.sessions.start(id, time.Duration(ttl)*time.Second))
}

func (s *sessionIssuer) start(id cloudsim.InstanceID, ttl time.Duration) string {
	end := binary.BigEndian.AppendUint64(nil, uint64(s.now().Add(ttl).UnixNano()))
	return base64.RawURLEncoding.EncodeToString(append(end, s.mac(end, id)...))
}

func (s *sessionIssuer) mac(end []byte, id cloudsim.InstanceID) []byte {
	m := hmac.New(sha256.New, s.key[:])
	m.Write(end)
	m.Write([]byte(id))
	return m.Sum(nil)
}

// check returns an error if the session token is missing or expired, or belongs to another
// instance. A missing token has its own error. All other failures return the same error.
func (s *sessionIssuer) check(r *http.Request, id cloudsim.InstanceID, of cloudsim.MetadataSession) error {
	token := r.Header.Get(of.TokenHeader)
	if token == "" {
		return &httpError{http.StatusUnauthorized, "no session token: PUT " + of.Path + " for a token, and send the token in the header " + of.TokenHeader}
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) != 8+sha256.Size || !hmac.Equal(raw[8:], s.mac(raw[:8], id)) ||
		!s.now().Before(time.Unix(0, int64(binary.BigEndian.Uint64(raw[:8])))) {
		return &httpError{http.StatusUnauthorized, "the session token is invalid or expired: PUT " + of.Path + " for a new token"}
	}
	return nil
}
