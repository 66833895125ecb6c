package registry

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/run"
)

// tokenPath is the path of the token endpoint. The distribution token
// specification defines two methods: GET with Basic authentication, and POST
// with a form.
const tokenPath = "/token"

// maxForm bounds the size of a POST to the token endpoint.
const maxForm = 64 << 10

type tokenRequest struct {
	password, service string
	scopes            []string
}

// answerTokenRequest answers token requests with the methods GET and POST. If the answer to a POST
// is 401, containerd repeats the request with GET. A wrong password of containerd can therefore
// cause two entries in the audit trail.
func (s *server) answerTokenRequest(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	about := cloudsim.RegistryDecision{Operation: cloudsim.RegistryToken, RequestID: requestID(r)}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	if s.tooMany(w, about, "address "+host) {
		return
	}
	req, code, err := readTokenRequest(w, r)
	if err == nil && req.service != "" && req.service != s.cfg.Name {
		code, err = http.StatusBadRequest, errors.New("the parameter service must be "+s.cfg.Name)
	}
	if err != nil {
		s.engine.AuditRegistry(about, err)
		refuseToken(w, code, "UNSUPPORTED", err.Error())
		return
	}
	id := about.RequestID
	if req.password == "" {
		s.refusePassword(w, id, req, cloudsim.Errorf(cloudsim.Unauthenticated, "the request has no password: log in to the registry first. If a kubelet with a credential provider sent the request, search the kubelet's log for a code that begins with E_"))
		return
	}
	caller, err := s.engine.AuthorizeRegistryPassword(req.password)
	if err != nil {
		s.refusePassword(w, id, req, err)
		return
	}
	if about.Caller = caller.Name(); s.tooMany(w, about, "caller "+caller.Name()) {
		return
	}
	run.Authenticated(r.Context())
	s.mint(w, r, id, caller, req)
}

// refusePassword answers a token request that failed authentication. The parameter why is the
// reason for the refusal. refusePassword records this reason in the audit trail, and then gives one
// of these answers:
//   - If the kind of why is not Unauthenticated, the cloud could not check the password. The status
//     is 503.
//   - If the request has a scope, and has no password or a password in the cloud's format (a JWT),
//     the answer is a bearer token without permissions.
//   - Otherwise the status is 401.
//
// The bearer token is necessary because containerd shows only the status of a 401, without the
// reason. When containerd uses the bearer token, the registry refuses the request and answers with
// the reason. containerd shows this reason in the pod's event.
func (s *server) refusePassword(w http.ResponseWriter, id string, req tokenRequest, why error) {
	s.engine.AuditRegistry(cloudsim.RegistryDecision{Operation: cloudsim.RegistryToken, RequestID: id}, why)
	if cloudsim.KindOf(why) != cloudsim.Unauthenticated {
		refuseToken(w, http.StatusServiceUnavailable, "UNAVAILABLE", "the cloud cannot check the password: see the cloud's log")
		return
	}
	msg := why.Error()
	if req.password != "" {
		msg = "the password is not valid: " + msg
	}
	if isJWT := strings.Count(req.password, ".") == 2; len(req.scopes) > 0 && (isJWT || req.password == "") {
		b, err := s.engine.CreateRegistryRefusal(msg)
		if err == nil {
			s.grant(w, b)
			return
		}
		s.log.Error("cannot create a bearer token", "requestId", id, "err", err)
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="`+s.cfg.URL+tokenPath+`"`)
	refuseToken(w, http.StatusUnauthorized, "UNAUTHORIZED", msg)
}

func (s *server) grant(w http.ResponseWriter, b engine.RegistryBearer) {
	reply(w, http.StatusOK, map[string]any{
		"token": b.Token, "access_token": b.Token, "expires_in": int(b.Life / time.Second), "issued_at": b.IssuedAt.Format(time.RFC3339),
	})
}

func (s *server) mint(w http.ResponseWriter, r *http.Request, id string, caller engine.RegistryCaller, req tokenRequest) {
	ctx, cancel := context.WithTimeout(r.Context(), cloudsim.MaxFaultHang)
	defer cancel()
	about := s.newSession(w, r)
	about.caller = caller
	err := s.guard.checkFaults(ctx, about, cloudsim.RegistryToken, "")
	about.extendDeadline()
	if err != nil {
		e, ok := errors.AsType[*injectedFault](err)
		switch {
		case ok:
			e.writeError(w)
		case ctx.Err() != nil:
			drop() // the client has left, and net/http would answer 200 with an empty body
		default:
			s.log.ErrorContext(ctx, "cannot read the fault rules", "requestId", id, "err", err)
			refuseToken(w, http.StatusServiceUnavailable, "UNAVAILABLE", "the cloud cannot read its fault rules: see the cloud's log")
		}
		return
	}
	var accesses []cloudsim.RegistryAccess
	for _, scope := range req.scopes {
		if a, ok := cloudsim.ParseRegistryAccess(scope); ok {
			accesses = append(accesses, a)
		}
	}
	b, err := s.engine.CreateRegistryBearer(caller, id, accesses)
	if err != nil {
		s.log.ErrorContext(ctx, "cannot create a bearer token", "requestId", id, "err", err)
		refuseToken(w, http.StatusInternalServerError, "UNKNOWN", "internal error: see the cloud's log")
		return
	}
	if f := about.after; f != nil {
		switch f.Effect.Type {
		case cloudsim.FaultLoseReply:
			drop()
		case cloudsim.FaultErrorAfterCommit:
			(&injectedFault{f}).writeError(w)
			return
		case cloudsim.FaultCorruptToken:
			b.Token = corruptToken(b.Token)
		}
	}
	s.grant(w, b)
}

// corruptToken changes a character of a token's signature.
func corruptToken(token string) string {
	i := strings.LastIndexByte(token, '.') + 1
	c := byte('A')
	if token[i] == c {
		c = 'B'
	}
	return token[:i] + string(c) + token[i+1:]
}

func readTokenRequest(w http.ResponseWriter, r *http.Request) (t tokenRequest, code int, err error) {
	switch r.Method {
	case http.MethodGet:
		_, t.password, _ = r.BasicAuth()
		q := r.URL.Query()
		t.service, t.scopes = q.Get("service"), scopesIn(q["scope"])
	case http.MethodPost:
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			return t, http.StatusBadRequest, errors.New("the form in the body is not valid")
		}
		t.service, t.scopes = r.PostForm.Get("service"), scopesIn(r.PostForm["scope"])
		switch r.PostForm.Get("grant_type") {
		case "password":
			t.password = r.PostForm.Get("password")
		case "refresh_token":
			t.password = r.PostForm.Get("refresh_token")
		default:
			return t, http.StatusBadRequest, errors.New("grant_type must be password or refresh_token")
		}
	default:
		w.Header().Set("Allow", "GET, POST")
		return t, http.StatusMethodNotAllowed, errors.New("the token endpoint supports only GET and POST")
	}
	if len(t.scopes) > 32 {
		return t, http.StatusBadRequest, errors.New("the request has more than 32 scopes")
	}
	return t, 0, nil
}

// scopesIn returns the scopes in the values of a parameter. A client
// may send one parameter per scope, or all scopes in one parameter.
func scopesIn(values []string) (scopes []string) {
	for _, v := range values {
		scopes = append(scopes, strings.Fields(v)...)
	}
	return scopes
}

func refuseToken(w http.ResponseWriter, status int, code, msg string) {
	reply(w, status, map[string]any{"errors": []map[string]string{{"code": code, "message": msg}}, "details": msg})
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error means that the client has left
}

// tooMany reports whether a client exceeds the rate of token requests. If the client
// exceeds the rate, tooMany answers 429 with the header Retry-After.
func (s *server) tooMany(w http.ResponseWriter, about cloudsim.RegistryDecision, client string) bool {
	wait := s.limits.waitTime(client, time.Now())
	if wait == 0 {
		return false
	}
	seconds := int((wait + time.Second - 1) / time.Second)
	why := cloudsim.Errorf(cloudsim.Exhausted, "too many requests for tokens from %s: wait %d s", client, seconds)
	s.engine.AuditRegistry(about, why)
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	refuseToken(w, http.StatusTooManyRequests, "TOOMANYREQUESTS", why.Error())
	return true
}

// tokenLimits contains the rate limiters of token requests, one per address and one per caller. The
// limiters protect the registry even while a user has stopped the cloud's clock, because they use
// the machine's clock.
type tokenLimits struct {
	perSecond rate.Limit
	burst     int
	mu        sync.Mutex
	of        map[string]*rate.Limiter
}

// maxLimiters is the number of limiters at which waitTime deletes all full limiters to free memory.
// A limiter is full if its client can send a whole burst of requests. A new limiter is also full,
// so the deletion changes no limit.
const maxLimiters = 10_000

// waitTime returns how long the client must wait. If the result is 0, the request is allowed. A
// refused request does not count toward the rate.
func (l *tokenLimits) waitTime(client string, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	one, ok := l.of[client]
	if !ok {
		if len(l.of) >= maxLimiters {
			maps.DeleteFunc(l.of, func(_ string, one *rate.Limiter) bool { return one.TokensAt(now) >= float64(l.burst) })
		}
		if l.of == nil {
			l.of = map[string]*rate.Limiter{}
		}
		one = rate.NewLimiter(l.perSecond, l.burst)
		l.of[client] = one
	}
	r := one.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}
