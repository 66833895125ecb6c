package aws

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// query decodes the parameters of a request. When a method of query returns a parameter, it deletes
// this parameter from q.left. The code of each call reads all parameters that the call supports,
// and then calls q.finish. If q.left still contains parameters, q.finish refuses the request. A
// method that finds an invalid value stores an error in q.err, and q.finish returns this error.
type query struct {
	*dialect.Request
	left map[string]string // the parameters that no method has returned yet
	err  error             // the first error
}

func newQuery(r *dialect.Request) *query {
	q := &query{Request: r, left: make(map[string]string, len(r.Form))}
	if len(r.Form) > maxParameters {
		q.fail(coded(http.StatusBadRequest, "InvalidParameterCombination", fmt.Sprintf("the request has %d parameters, at most %d are allowed", len(r.Form), maxParameters)))
		return q
	}
	for name, values := range r.Form {
		if len(values) > 1 {
			q.fail(coded(http.StatusBadRequest, "InvalidParameterCombination", "the parameter "+clip(name)+" is present twice"))
		}
		if name != "Action" && name != "Version" {
			q.left[name] = values[0]
		}
	}
	return q
}

// detached returns a copy of q that also works after the client has disconnected; see
// dialect.Request.Detached. The caller must call cancel.
func (q *query) detached() (out *query, cancel context.CancelFunc) {
	copied := *q
	copied.Request, cancel = q.Detached()
	return &copied, cancel
}

func (q *query) fail(err error) {
	if q.err == nil {
		q.err = err
	}
}

func errInvalid(name, value, must string) error {
	return coded(http.StatusBadRequest, "InvalidParameterValue", "the parameter "+name+" must be "+must+", got "+clip(value))
}

// text returns the value of a parameter, or "" if the parameter is absent.
func (q *query) text(name string) string {
	v := q.left[name]
	delete(q.left, name)
	return v
}

// requiredText returns the value of a parameter. The request must contain the parameter, and its
// value must not be empty.
func (q *query) requiredText(name string) string {
	v := q.text(name)
	q.checkPresent(v != "", name)
	return v
}

// integer returns the value of a parameter. The value must be a number from low to high. If the
// request does not contain the parameter, integer returns defaultValue.
func (q *query) integer(name string, low, high, defaultValue int) int {
	v := q.text(name)
	if v == "" {
		return defaultValue
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < low || n > high {
		q.fail(errInvalid(name, v, fmt.Sprintf("%d to %d", low, high)))
	}
	return n
}

// requiredInteger returns the value of a parameter. The request must contain the parameter, and its
// value must be a number from low to high.
func (q *query) requiredInteger(name string, low, high int) int {
	if q.left[name] == "" {
		q.requiredText(name)
		return 0
	}
	return q.integer(name, low, high, 0)
}

// flag returns the value of a boolean parameter, or false if the parameter is absent.
func (q *query) flag(name string) bool {
	v := q.text(name)
	if v != "" && v != "true" && v != "false" {
		q.fail(errInvalid(name, v, "true or false"))
	}
	return v == "true"
}

// maxParameters is the largest number of parameters of a request. It limits the time for the
// decoding of a request.
const maxParameters = 4000

// maxList is the largest number of elements in a list. EC2 has the same limit.
const maxList = 1000

// textList returns the elements of the list with the given name. The elements are the parameters
// NAME.1, NAME.2 and so on.
func (q *query) textList(name string) (all []string) {
	q.dropEmpty(name)
	for n := 1; n <= maxList; n++ {
		key := name + "." + strconv.Itoa(n)
		v, ok := q.left[key]
		if !ok {
			break
		}
		delete(q.left, key)
		all = append(all, v)
	}
	return all
}

// forEach calls fn for each structure in the list with the given name. The argument of fn is the
// prefix of the structure's parameters, e.g. "IpPermissions.1.". If q.err contains an error,
// forEach does not call fn for the remaining structures.
func (q *query) forEach(name string, fn func(prefix string)) {
	q.dropEmpty(name)
	for n := 1; n <= maxList && q.err == nil; n++ {
		prefix := name + "." + strconv.Itoa(n) + "."
		if !q.hasPrefix(prefix) {
			return
		}
		fn(prefix)
	}
}

func (q *query) hasPrefix(prefix string) bool {
	for name := range q.left {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// dropEmpty deletes the parameter that the SDK sends for an empty list. The name of this parameter
// is the name of the list without the suffix ".member", and its value is "".
func (q *query) dropEmpty(list string) {
	if name := strings.TrimSuffix(list, ".member"); q.left[name] == "" {
		delete(q.left, name)
	}
}

// A filter selects resources for a list. A resource matches the filter if one of the values from
// kind.valuesOf matches one of the patterns in filter.match.
type filter struct {
	name   string
	values []string
	match  []pattern
}

// maxFilterValue is the largest number of characters of a filter value. EC2 has the same limit.
const maxFilterValue = 255

// decodeFilters decodes the filters of a call: the parameters Filter.1.Name, Filter.1.Value.1 and
// so on.
func (q *query) decodeFilters() (all []filter) {
	for n := 1; n <= maxList; n++ {
		prefix := "Filter." + strconv.Itoa(n)
		if _, ok := q.left[prefix+".Name"]; !ok {
			break
		}
		name := q.text(prefix + ".Name")
		if name == "" {
			q.fail(errInvalid(prefix+".Name", name, "the name of a filter"))
		}
		f := filter{name: name, values: q.textList(prefix + ".Value")}
		if len(f.values) == 0 {
			q.fail(coded(http.StatusBadRequest, "InvalidParameterValue", "the filter "+clip(name)+" must have a value"))
		}
		for n, v := range f.values {
			if utf8.RuneCountInString(v) > maxFilterValue {
				q.fail(errInvalid(prefix+".Value."+strconv.Itoa(n+1), v, fmt.Sprintf("at most %d characters", maxFilterValue)))
			}
			f.match = append(f.match, parsePattern(v))
		}
		all = append(all, f)
	}
	return all
}

// pattern is a filter value in decoded form. A pattern is not a regular expression, because some
// regular expressions take a long time to compile. An unauthenticated client could send these
// expressions, because the dialect decodes filters before the cloud checks the signature.
type pattern []rune

// Special elements of a pattern. No character has these values.
const (
	anyText      rune = -1 // any number of characters
	anyCharacter rune = -2 // one character
)

// parsePattern decodes the value of a filter. In the value, * stands for any number of characters,
// and ? stands for one character. The character \ removes the special meaning of the next
// character.
func parsePattern(value string) (p pattern) {
	escaped := false
	for _, c := range value {
		switch {
		case !escaped && c == '\\':
			escaped = true
			continue
		case !escaped && c == '*':
			c = anyText
		case !escaped && c == '?':
			c = anyCharacter
		}
		escaped = false
		if c != anyText || len(p) == 0 || p[len(p)-1] != anyText {
			p = append(p, c)
		}
	}
	return p
}

// matches reports whether the pattern matches the whole text. If a character does not match, the
// method goes back to the last element anyText, and lets this element match one more character.
func (p pattern) matches(text string) bool {
	rest := []rune(text)
	at, n := 0, 0 // the next element of p, and the next character of rest
	last, from := -1, 0
	for n < len(rest) {
		switch {
		case at < len(p) && p[at] == anyText:
			last, from = at, n
			at++
		case at < len(p) && (p[at] == anyCharacter || p[at] == rest[n]):
			at++
			n++
		case last >= 0:
			from++
			at, n = last+1, from
		default:
			return false
		}
	}
	return at == len(p) || at == len(p)-1 && p[at] == anyText
}

// literalValue returns the first value of a filter. The second result is true if the filter has no
// other values and the first value contains no special characters.
func (f filter) literalValue() (string, bool) {
	return f.values[0], len(f.values) == 1 && !strings.ContainsAny(f.values[0], `*?\`)
}

// page contains the size and the start of the page that a call requests.
type page struct {
	limit int    // 0 means all
	after string // the page begins after the resource with this id of the cloud; "" for the first page
}

func (q *query) decodePage() (p page) {
	if v := q.text("MaxResults"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 5 || n > maxList {
			q.fail(errInvalid("MaxResults", v, "5 to 1000"))
		}
		p.limit = n
	}
	p.after = q.decodePageToken("NextToken")
	return p
}

// decodePageToken returns the id in a parameter that contains the token of a page. It returns "" if
// the parameter is absent.
func (q *query) decodePageToken(name string) string {
	v := q.text(name)
	id, ok := parseNextToken(v)
	if !ok {
		q.fail(errInvalid(name, v, "the token of the previous page"))
	}
	return id
}

var tokenRE = regexp.MustCompile(`^[-a-z0-9]{1,128}$`)

func nextToken(id string) string { return base64.RawURLEncoding.EncodeToString([]byte(id)) }

// parseNextToken returns the id in a token that nextToken has created. For the token "", it returns
// the id "".
func parseNextToken(token string) (id string, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	return string(raw), token == "" || err == nil && tokenRE.Match(raw)
}

// finish returns the first error that a method has stored. If no error is stored and q.left
// contains a parameter, finish returns an error, because the call does not support this parameter.
// If q.left is empty and the request is a dry run, finish returns the result of dryRun.
func (q *query) finish() error {
	dry := q.flag("DryRun")
	if q.err != nil {
		return q.err
	}
	if len(q.left) > 0 {
		name := slices.Sorted(maps.Keys(q.left))[0]
		return coded(http.StatusBadRequest, "UnknownParameter", "the parameter "+clip(name)+" is not supported by cloudsim's dialect aws: remove it")
	}
	if dry {
		return q.dryRun()
	}
	return nil
}

// dryRun asks the cloud to check the caller's signature. If the signature is valid, dryRun returns
// the error DryRunOperation, as EC2 does after a successful dry run. Otherwise it returns the
// cloud's error.
func (q *query) dryRun() error {
	if _, err := q.Cloud.WhoAmI(q.Context()); err != nil {
		return err
	}
	return coded(http.StatusPreconditionFailed, "DryRunOperation", "the request would have succeeded, but the parameter DryRun is set; the cloud checked only the parameters and the signature")
}

// region returns the region in the signature of the request.
func (q *query) region() string { return regionOf(q.Header) }

func regionOf(h http.Header) string {
	s, _, _ := parseAuthorization(h) // no error, because signatureToken has checked the header
	return s.Region
}

// kind contains the names and functions with which calls find resources of one type, e.g. volumes.
// T is the Go type of a resource, and I is the type of its id in this cloud.
type kind[T any, I ~string] struct {
	one    string // name in errors, e.g. "instance"
	param  string // list parameter with AWS's ids, e.g. "InstanceId"
	prefix string // prefix of AWS's ids; "" if the ids are names of this cloud
	code   string // first part of the codes of errors about ids, e.g. "InvalidInstanceID"
	// malformed is the error code for an id of AWS with a wrong format. If malformed is "", the
	// error code is kind.code plus the suffix ".Malformed".
	malformed string
	own       string // prefix of this cloud's ids
	named     string // filter whose values are the names of resources in this cloud; "" for none
	get       func(*client.Client, context.Context, I) (T, error)
	all       func(*client.Client, context.Context, cloudsim.ListOptions) (cloudsim.List[T], error)
	meta      func(T) cloudsim.Meta
	id        func(T) string // id in this cloud
	// values maps the name of each filter to a function, which returns the values of a resource for
	// this filter. It does not contain the filters for tags; see valuesOf.
	values map[string]func(T) []string
}

// ownID returns this cloud's id for an id of AWS. It returns an error if the format of AWS's id is
// wrong.
func (k kind[T, I]) ownID(id string) (I, error) {
	if k.prefix == "" {
		return I(id), nil
	}
	n, ok := parseID(k.prefix, id)
	if !ok {
		return "", coded(http.StatusBadRequest, cmp.Or(k.malformed, k.code+".Malformed"), fmt.Sprintf("the id %.80q of the %s must be %s- and 17 hex digits", id, k.one, k.prefix))
	}
	return dialect.ID[I](k.own, n), nil
}

func (k kind[T, I]) errNotFound(id string) error {
	return coded(http.StatusBadRequest, k.code+".NotFound", "the "+k.one+" "+clip(id)+" does not exist")
}

// matcher returns a function that reports whether a resource matches all filters. If one of the
// filters is unknown, matcher returns an error.
func (k kind[T, I]) matcher(filters []filter) (func(T) bool, error) {
	for _, f := range filters {
		if k.values[f.name] == nil && f.name != "tag-key" && !strings.HasPrefix(f.name, "tag:") {
			return nil, coded(http.StatusBadRequest, "InvalidParameterValue", "the filter "+clip(f.name)+" is not supported by cloudsim's dialect aws")
		}
	}
	return func(v T) bool {
		for _, f := range filters {
			if !slices.ContainsFunc(k.valuesOf(f.name, v), func(s string) bool {
				return slices.ContainsFunc(f.match, func(p pattern) bool { return p.matches(s) })
			}) {
				return false
			}
		}
		return true
	}, nil
}

// valuesOf returns the values of the resource v for the filter with the given name.
func (k kind[T, I]) valuesOf(name string, v T) (all []string) {
	labels := dialect.Visible(k.meta(v).Labels)
	if name == "tag-key" {
		for key := range labels {
			all = append(all, key)
		}
		return all
	}
	if key, ok := strings.CutPrefix(name, "tag:"); ok {
		if value, ok := labels[key]; ok {
			all = append(all, value)
		}
		return all
	}
	return k.values[name](v)
}
