package httpapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/httpapi"
)

// additionalMembers contains JSON that the test adds to a generated request body. A generated body
// contains only the required members and the tested member. The additional JSON is necessary if
// Validate accepts the tested member only together with other optional members. A key consists of
// the tested member, a slash, and the keyword of the tested limit, such as maxLength.
var additionalMembers = map[string]string{
	"affinityTimeoutSeconds/maximum":                   `{"affinity":"clientIP"}`,
	"effect.ageSeconds/maximum":                        `{"effect":{"type":"staleRead"}}`,
	"effect.latencyMillis/maximum":                     `{"effect":{"type":"latency"}}`,
	"effect.scope/enum":                                `{"effect":{"type":"zoneOutage"}}`,
	"healthCheck.expectedCodes/maxLength":              `{"healthCheck":{"protocol":"http"}}`,
	"listeners[0].healthCheck.expectedCodes/maxLength": `{"listeners":[{"protocol":"tcp","port":80,"targetPort":1,"healthCheck":{"protocol":"http"}}]}`,
	"podRanges.ipv4Mask/maximum":                       `{"podRanges":{"ipv4":"10.11.0.0/16"}}`,
	"podRanges.ipv6Mask/maximum":                       `{"podRanges":{"ipv6":"fd11::/56"}}`,
}

// memberTexts has a function for some members, such as healthCheck.path. These members accept only
// text of a special form. The function returns valid text of the given length.
var memberTexts = map[string]func(length int) string{
	"healthCheck.expectedCodes":              statuses,
	"healthCheck.path":                       path,
	"listeners[0].healthCheck.expectedCodes": statuses,
	"listeners[0].healthCheck.path":          path,
	"prefix":                                 path,
	"session.path":                           path,
	"leaves[0].path":                         path,
	"issuer":                                 func(n int) string { return "https://" + strings.Repeat("a", n-len("https://")) },
	"keys":                                   func(n int) string { return `{"keys":[{}]}` + strings.Repeat(" ", n-len(`{"keys":[{}]}`)) },
}

func statuses(length int) string { return strings.Repeat("0", length-len("200")) + "200" }

func path(length int) string { return "/" + strings.Repeat("a", length-len("/")) }

// TestDocumentedLimits proves that the limits in the OpenAPI document are the limits of Validate.
// Validate accepts the last value within a limit and refuses the first value beyond the limit. The
// API also refuses the first value beyond the limit, and its error names the JSON member with this
// value.
func TestDocumentedLimits(t *testing.T) {
	c := cloudtest.Start(t)
	doc := httpapi.Document()
	limits := 0
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for method, o := range map[string]*huma.Operation{http.MethodPost: doc.Paths[path].Post, http.MethodPut: doc.Paths[path].Put} {
			if o == nil || o.RequestBody == nil || o.RequestBody.Content["application/json"] == nil {
				continue
			}
			ref := o.RequestBody.Content["application/json"].Schema.Ref
			request := doc.Components.Schemas.TypeFromRef(ref)
			for _, l := range limitsOf(doc, &huma.Schema{Ref: ref}, "") {
				limits++
				t.Run(o.OperationID+"/"+l.member+"/"+l.name, func(t *testing.T) {
					for _, v := range l.valid {
						if raw := bodyOf(t, doc, ref, l, v); slices.Contains(refusedMembers(t, request, raw), l.member) {
							t.Errorf("Validate refuses %.80v, which is within the documented limit: %.300s", v, raw)
						}
					}
					for _, v := range l.invalid {
						raw := bodyOf(t, doc, ref, l, v)
						if !slices.Contains(refusedMembers(t, request, raw), l.member) {
							t.Errorf("Validate does not refuse %.80v, which is beyond the documented limit: %.300s", v, raw)
							continue
						}
						resp, answer := sendRequest(t, c, method, strings.ReplaceAll(path, "{id}", "x"), string(raw))
						if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(answer), fmt.Sprintf("%q:%q", "field", l.member)) {
							t.Errorf("got status %s, want 400 for the field: %.300s", resp.Status, answer)
						}
					}
				})
			}
		}
	}
	if limits < 100 {
		t.Errorf("got %d documented limits, want at least 100", limits)
	}
}

func refusedMembers(t *testing.T, request reflect.Type, raw []byte) (members []string) {
	t.Helper()
	v := reflect.New(request)
	if err := json.Unmarshal(raw, v.Interface()); err != nil {
		wrong, ok := errors.AsType[*json.UnmarshalTypeError](err) // e.g. a negative number for an unsigned integer
		if !ok {
			t.Fatalf("got error %v, want an UnmarshalTypeError: %.300s", err, raw)
		}
		return []string{strings.TrimPrefix(wrong.Field, "FaultSpec.")}
	}
	err := v.Interface().(interface{ Validate() error }).Validate()
	if e, ok := errors.AsType[*cloudsim.Error](err); ok {
		for _, f := range e.Fields {
			members = append(members, f.Field)
		}
	}
	return members
}

// limit is a schema keyword, such as maxLength, that restricts a member of a request body.
type limit struct {
	member, name string // path of the member, and keyword
	valid        []any  // values that the keyword allows
	invalid      []any  // values that the keyword does not allow
}

// limitsOf returns the limits of s and of all nested members.
func limitsOf(doc *huma.OpenAPI, s *huma.Schema, member string) (all []limit) {
	for s.Ref != "" {
		s = doc.Components.Schemas.SchemaFromRef(s.Ref)
	}
	add := func(name string, valid, invalid any) {
		all = append(all, limit{member, name, []any{valid}, []any{invalid}})
	}
	if s.Minimum != nil {
		add("minimum", *s.Minimum, *s.Minimum-1)
	}
	if s.Maximum != nil {
		add("maximum", *s.Maximum, *s.Maximum+1)
	}
	if s.ExclusiveMinimum != nil {
		add("exclusiveMinimum", *s.ExclusiveMinimum+0.001, *s.ExclusiveMinimum)
	}
	if s.MinLength != nil {
		add("minLength", text(member, *s.MinLength), text(member, *s.MinLength-1))
	}
	if s.MaxLength != nil {
		add("maxLength", text(member, *s.MaxLength), text(member, *s.MaxLength+1))
	}
	if s.MinItems != nil {
		add("minItems", items(doc, s, *s.MinItems), items(doc, s, *s.MinItems-1))
	}
	if s.MaxItems != nil {
		add("maxItems", items(doc, s, *s.MaxItems), items(doc, s, *s.MaxItems+1))
	}
	if s.Pattern != "" {
		l := limit{member: member, name: "pattern"}
		for _, v := range []string{"a", "0-a", "-a", "a-", "A", "é", "a b", "a\n", "*", "a*", strings.Repeat("a", 41), strings.Repeat("a", 64)} {
			if regexp.MustCompile(s.Pattern).MatchString(v) {
				l.valid = append(l.valid, v)
			} else {
				l.invalid = append(l.invalid, v)
			}
		}
		all = append(all, l)
	}
	if s.Enum != nil {
		all = append(all, limit{member, "enum", s.Enum, []any{"other"}})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		all = append(all, limitsOf(doc, s.Properties[name], strings.TrimPrefix(member+"."+name, "."))...)
	}
	if s.Items != nil {
		all = append(all, limitsOf(doc, s.Items, member+"[0]")...)
	}
	return all
}

func text(member string, length int) string {
	if of := memberTexts[member]; of != nil {
		return of(length)
	}
	return strings.Repeat("a", length)
}

func items(doc *huma.OpenAPI, s *huma.Schema, n int) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = sample(doc, s.Items)
		if word, ok := list[i].(string); ok && s.Items.Enum == nil {
			list[i] = fmt.Sprintf("%s%d", word, i) // some lists refuse duplicates
		}
	}
	return list
}

// bodyOf returns a request body in which the member l.member has the given value.
func bodyOf(t *testing.T, doc *huma.OpenAPI, ref string, l limit, value any) []byte {
	t.Helper()
	s := doc.Components.Schemas.SchemaFromRef(ref)
	body := sample(doc, s).(map[string]any)
	if more := additionalMembers[l.member+"/"+l.name]; more != "" {
		if err := json.Unmarshal([]byte(more), &body); err != nil {
			t.Fatal(err)
		}
	}
	path := strings.FieldsFunc(l.member, func(r rune) bool { return strings.ContainsRune(".[]", r) })
	raw, err := json.Marshal(setAt(doc, s, body, path, value))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// setAt sets the value at the given path in tree, which is a JSON value. It creates missing
// objects and lists, and returns the changed JSON value.
func setAt(doc *huma.OpenAPI, s *huma.Schema, tree any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	for s.Ref != "" {
		s = doc.Components.Schemas.SchemaFromRef(s.Ref)
	}
	if s.Items != nil {
		list, _ := tree.([]any)
		if len(list) == 0 {
			list = []any{sample(doc, s.Items)}
		}
		list[0] = setAt(doc, s.Items, list[0], path[1:], value)
		return list
	}
	members, _ := tree.(map[string]any)
	if members == nil {
		members = sample(doc, s).(map[string]any)
	}
	members[path[0]] = setAt(doc, s.Properties[path[0]], members[path[0]], path[1:], value)
	return members
}

// sample returns a valid value of a schema. If the value is an object, it has only the required
// members.
func sample(doc *huma.OpenAPI, s *huma.Schema) any {
	for s.Ref != "" {
		s = doc.Components.Schemas.SchemaFromRef(s.Ref)
	}
	switch {
	case len(s.Enum) > 0:
		return s.Enum[0]
	case len(s.Examples) > 0 && s.Type != huma.TypeArray:
		return s.Examples[0]
	case s.Type == huma.TypeString:
		return "a"
	case s.Type == huma.TypeInteger, s.Type == huma.TypeNumber:
		return 1
	case s.Type == huma.TypeBoolean:
		return false
	case s.Type == huma.TypeArray:
		return []any{sample(doc, s.Items)}
	}
	members := map[string]any{}
	for _, name := range s.Required {
		members[name] = sample(doc, s.Properties[name])
	}
	return members
}
