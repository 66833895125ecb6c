package restfuzz

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// schema is the part of a JSON schema that the generator uses.
type schema struct {
	Ref                  string             `json:"$ref"`
	Type                 any                `json:"type"` // a name or a list of names
	Properties           map[string]*schema `json:"properties"`
	Required             []string           `json:"required"`
	Items                *schema            `json:"items"`
	AdditionalProperties any                `json:"additionalProperties"`
	Enum                 []any              `json:"enum"`
	Format               string             `json:"format"`
	Minimum, Maximum     *float64
	MaxItems, MinItems   *int
}

// allowsType reports whether the schema allows values of the JSON type with the given name.
func (s *schema) allowsType(name string) bool {
	switch t := s.Type.(type) {
	case string:
		return t == name
	case []any:
		return slices.Contains(t, any(name))
	}
	return false
}

// operation is an HTTP method of a path in the OpenAPI document.
type operation struct {
	id, method, path string
	query            []string
	body             *schema // nil: the operation takes no JSON body
	binary           bool    // the body is a file
}

// collection returns the first part of the path after /v1. An example is "disks" for
// /v1/disks/{id}/attach.
func (o operation) collection() string {
	name, _, _ := strings.Cut(strings.TrimPrefix(o.path, "/v1/"), "/")
	return name
}

type spec struct {
	schemas    map[string]*schema
	operations []operation
}

func (s spec) resolve(v *schema) *schema {
	if v.Ref == "" {
		return v
	}
	return s.schemas[v.Ref[strings.LastIndex(v.Ref, "/")+1:]]
}

// readSpec reads the committed OpenAPI document. It leaves out the operation for watches, because a
// watch never ends.
func readSpec(t *testing.T) spec {
	t.Helper()
	raw, err := os.ReadFile("../../docs/reference/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
			Parameters  []struct{ Name, In string }
			RequestBody struct {
				Content map[string]struct{ Schema *schema }
			} `json:"requestBody"`
		}
		Components struct{ Schemas map[string]*schema }
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	s := spec{schemas: doc.Components.Schemas}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if strings.HasSuffix(op.OperationID, ".watch") {
				continue
			}
			o := operation{id: op.OperationID, method: strings.ToUpper(method), path: path}
			for _, p := range op.Parameters {
				if p.In == "query" {
					o.query = append(o.query, p.Name)
				}
			}
			for kind, content := range op.RequestBody.Content {
				if o.binary = kind != "application/json"; !o.binary {
					o.body = content.Schema
				}
			}
			s.operations = append(s.operations, o)
		}
	}
	slices.SortFunc(s.operations, func(a, b operation) int { return strings.Compare(a.id, b.id) })
	return s
}
