package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

const (
	codeLife    = 2 * time.Minute // after this time a code is invalid
	wrongDelay  = time.Second     // delay of the answer to a wrong code
	maxWrong    = 8               // maximum number of requests with a wrong code that wait for their answer at the same time
	maxCodes    = 1000            // maximum number of unused codes
	defaultTTL  = 12 * time.Hour  // lifetime of a session
	maxTTL      = 30 * 24 * time.Hour
	maxFormBody = 4 << 10
	maxAnswer   = 1 << 20
)

// CreateLink is a request for a link to the console.
type CreateLink struct {
	ReadOnly   bool               `json:"readOnly,omitempty"`
	TTLSeconds int64              `json:"ttlSeconds,omitempty"` // lifetime of the session; 0: 12 hours
	Project    cloudsim.ProjectID `json:"project,omitempty"`    // absent for the caller's project
}

// Link is a link with which one browser can sign in. The link contains a code that is valid for two
// minutes and for one use.
type Link struct {
	Path      string    `json:"path"` // path and fragment of the URL
	ExpiresAt time.Time `json:"expiresAt"`
}

// Session is the answer to a valid code of a console link.
type Session struct {
	Token string `json:"token"`
}

// codeStore maps each unused code to the session that a user of the code gets. A code is a part of
// a console link, and works once. The key of the map is the SHA-256 of the code, so codeStore does
// not store the codes.
type codeStore struct {
	mu    sync.Mutex
	open  map[[32]byte]pending
	wrong chan struct{}
}

type pending struct {
	session Session
	until   time.Time
}

// add returns a new code for the session. It returns an error if there are too many unused codes.
func (c *codeStore) add(s Session, now time.Time) (string, error) {
	raw := make([]byte, 16)
	if _, err := rand.Read(raw); err != nil {
		return "", err
	}
	code := base64.RawURLEncoding.EncodeToString(raw)
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, p := range c.open {
		if now.After(p.until) {
			delete(c.open, k)
		}
	}
	if len(c.open) >= maxCodes {
		return "", cloudsim.Errorf(cloudsim.Exhausted, "there are %d unused links: wait two minutes until old links expire", maxCodes)
	}
	c.open[sha256.Sum256([]byte(code))] = pending{s, now.Add(codeLife)}
	return code, nil
}

// take returns the session of a code, and makes the code invalid.
func (c *codeStore) take(code string, now time.Time) (Session, bool) {
	key := sha256.Sum256([]byte(code))
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.open[key]
	delete(c.open, key)
	return p.session, ok && !now.After(p.until)
}

// createLink creates a token with the requested rights, and answers with a code for this token. The
// cloud decides whether the caller may create the token.
func (c *Console) createLink(w http.ResponseWriter, r *http.Request) {
	as := c.clientFor(r)
	if as == nil {
		writeRefusal(w, cloudsim.Unauthenticated, "the request has no bearer token")
		return
	}
	if _, err := as.WhoAmI(r.Context()); err != nil { // without a valid token, the console does not read the body of the request
		refuseError(w, err)
		return
	}
	var in CreateLink
	if err := decode(w, r, &in); err != nil {
		writeRefusal(w, cloudsim.Invalid, err.Error())
		return
	}
	if most := int64(maxTTL / time.Second); in.TTLSeconds < 0 || in.TTLSeconds > most {
		writeRefusal(w, cloudsim.Invalid, "ttlSeconds must be between 0 and 2592000 (30 days)")
		return
	}
	made, err := mint(r.Context(), as, in)
	if err != nil {
		refuseError(w, err)
		return
	}
	now := time.Now()
	code, err := c.codes.add(Session{Token: made.Secret}, now)
	if err != nil { // without a code, no browser can get the token
		refuseError(w, errors.Join(err, as.DeleteToken(context.WithoutCancel(r.Context()), made.ID)))
		return
	}
	answer(w, http.StatusCreated, Link{Path: "/console/#c=" + code, ExpiresAt: now.Add(codeLife)})
}

// mint creates the token of a session. A read-only session gets RoleViewer. Any other session gets
// RoleWriter if the request has a project. Otherwise the session gets RoleAdmin, because only
// RoleAdmin permits changes of faults and of the clock.
func mint(ctx context.Context, as *client.Client, in CreateLink) (made cloudsim.Token, err error) {
	raw := make([]byte, 4)
	if _, err := rand.Read(raw); err != nil {
		return made, err
	}
	t := cloudsim.CreateToken{
		Name: "console-" + hex.EncodeToString(raw), Role: cloudsim.RoleAdmin, TTLSeconds: in.TTLSeconds,
	}
	if in.Project != "" { // the header accepts the name or the id of a project
		as.Project = in.Project
	}
	switch {
	case in.ReadOnly:
		t.Role = cloudsim.RoleViewer
	case in.Project != "":
		t.Role = cloudsim.RoleWriter
	}
	if t.TTLSeconds == 0 {
		t.TTLSeconds = int64(defaultTTL / time.Second)
	}
	return as.CreateToken(ctx, t)
}

// createSession answers a request that contains a code of a console link. It returns the token of
// the session to which the code belongs.
func (c *Console) createSession(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		writeRefusal(w, cloudsim.Denied, "the request comes from a page of another site")
		return
	}
	var in struct {
		Code string `json:"code"`
	}
	if err := decode(w, r, &in); err != nil {
		writeRefusal(w, cloudsim.Invalid, err.Error())
		return
	}
	if s, ok := c.codes.take(in.Code, time.Now()); ok {
		answer(w, http.StatusOK, s)
		return
	}
	select {
	case c.codes.wrong <- struct{}{}:
		defer func() { <-c.codes.wrong }()
	default:
		w.Header().Set("Retry-After", "1")
		writeRefusal(w, cloudsim.Exhausted, "too many wrong codes: try again later")
		return
	}
	t := time.NewTimer(wrongDelay)
	defer t.Stop()
	select {
	case <-r.Context().Done():
	case <-t.C:
		writeRefusal(w, cloudsim.Unauthenticated, "the code of the link is wrong, already used, or older than two minutes: run 'allinone console open' for a new link")
	}
}

// clientFor returns a client of the cloud with the bearer token of a request. It returns
// nil if the request has no token.
func (c *Console) clientFor(r *http.Request) *client.Client {
	const scheme = "Bearer "
	h := r.Header.Get("Authorization")
	if len(h) <= len(scheme) || h[:len(scheme)] != scheme {
		return nil
	}
	as := *c.cfg.Cloud
	as.Token, as.Retries = client.StaticToken(h[len(scheme):]), 0
	as.Project = cloudsim.ProjectID(r.Header.Get("Cloud-Project"))
	return &as
}

// decode reads a JSON body of at most maxFormBody bytes.
func decode(w http.ResponseWriter, r *http.Request, into any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxFormBody))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return errors.New("the body is not the expected JSON: " + err.Error())
	}
	return nil
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error means that the caller has closed the connection
}

// statusOf maps error kinds to HTTP statuses. For a kind that the map does not contain, the
// console answers with 502.
var statusOf = map[cloudsim.Kind]int{
	cloudsim.Unauthenticated: http.StatusUnauthorized,
	cloudsim.Denied:          http.StatusForbidden,
	cloudsim.Invalid:         http.StatusBadRequest,
	cloudsim.NotFound:        http.StatusNotFound,
	cloudsim.Exhausted:       http.StatusTooManyRequests,
	cloudsim.Unavailable:     http.StatusServiceUnavailable,
}

// writeRefusal answers with a problem document, like the cloud's API.
func writeRefusal(w http.ResponseWriter, kind cloudsim.Kind, detail string) {
	status, ok := statusOf[kind]
	if !ok {
		status = http.StatusBadGateway
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(cloudsim.Problem{ // an error means that the caller has closed the connection
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Kind: kind,
	})
}

func refuseError(w http.ResponseWriter, err error) {
	writeRefusal(w, cloudsim.KindOf(err), err.Error())
}
