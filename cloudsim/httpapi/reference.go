package httpapi

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

//go:embed reference.html.tmpl
var referenceText string

var referencePage = template.Must(template.New("reference").Parse(referenceText))

// reference returns a handler for a page that shows the OpenAPI document to people. The handler
// makes the page at the first request. The page loads no files from other servers, so it works
// without a network.
func (a *api) reference() http.Handler {
	page := sync.OnceValues(func() ([]byte, error) {
		var buf bytes.Buffer
		err := referencePage.Execute(&buf, referenceOf(a.huma.OpenAPI()))
		return buf.Bytes(), err
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := page()
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		_, _ = w.Write(raw) // fails if the client has disconnected
	})
}

type reference struct {
	Title, Version, Description string
	Groups                      []referenceGroup
	Schemas                     []referenceSchema
	Kinds                       []referenceKind
}

type referenceGroup struct {
	Name       string
	Operations []referenceOperation
}

type referenceOperation struct {
	ID, Method, Path, Summary string
	Parameters                []referenceField
	Body                      string // schema of the request body
}

type referenceField struct {
	Name, In, Type, Description string
	Required                    bool
}

type referenceSchema struct {
	Name   string
	Fields []referenceField
}

type referenceKind struct {
	Kind   string
	Status int
}

func referenceOf(doc *huma.OpenAPI) reference {
	ref := reference{Title: doc.Info.Title, Version: doc.Info.Version, Description: doc.Info.Description}
	groups := map[string]*referenceGroup{}
	for _, path := range sortedKeys(doc.Paths) {
		for _, o := range operationsOf(doc.Paths[path]) {
			g := groups[o.Tags[0]]
			if g == nil {
				g = &referenceGroup{Name: o.Tags[0]}
				groups[g.Name] = g
			}
			g.Operations = append(g.Operations, operationOf(o))
		}
	}
	for _, name := range sortedKeys(groups) {
		ref.Groups = append(ref.Groups, *groups[name])
	}
	schemas := doc.Components.Schemas.Map()
	for _, name := range sortedKeys(schemas) {
		ref.Schemas = append(ref.Schemas, referenceSchema{name, fieldsOf(schemas[name])})
	}
	for _, k := range cloudsim.Kinds() {
		ref.Kinds = append(ref.Kinds, referenceKind{k.Error(), k.HTTPStatus()})
	}
	return ref
}

func sortedKeys[V any](m map[string]V) []string {
	ks := make([]string, 0, len(m))
	for k := range m {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}

func operationsOf(p *huma.PathItem) []*huma.Operation {
	return slices.DeleteFunc([]*huma.Operation{p.Get, p.Post, p.Put, p.Delete}, func(o *huma.Operation) bool { return o == nil })
}

func operationOf(o *huma.Operation) referenceOperation {
	out := referenceOperation{ID: o.OperationID, Method: o.Method, Path: o.Path, Summary: o.Summary}
	for _, p := range o.Parameters {
		out.Parameters = append(out.Parameters, referenceField{p.Name, p.In, typeOf(p.Schema), p.Description, p.Required})
	}
	if o.RequestBody != nil {
		if c := o.RequestBody.Content["application/json"]; c != nil {
			out.Body = typeOf(c.Schema)
		}
	}
	return out
}

func fieldsOf(s *huma.Schema) []referenceField {
	var fs []referenceField
	for _, name := range sortedKeys(s.Properties) {
		p := s.Properties[name]
		fs = append(fs, referenceField{name, "", typeOf(p), p.Description, slices.Contains(s.Required, name)})
	}
	return fs
}

func typeOf(s *huma.Schema) string {
	switch {
	case s == nil:
		return ""
	case s.Ref != "":
		return s.Ref[strings.LastIndex(s.Ref, "/")+1:]
	case s.Type == huma.TypeArray:
		return "[]" + typeOf(s.Items)
	case len(s.Enum) > 0:
		var vs []string
		for _, v := range s.Enum {
			if str, ok := v.(string); ok {
				vs = append(vs, str)
			}
		}
		return strings.Join(vs, " | ")
	}
	return s.Type
}
