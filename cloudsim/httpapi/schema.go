package httpapi

import (
	"encoding/json"

	"github.com/danielgtaylor/huma/v2"
)

const schemaPrefix = "#/components/schemas/"

// schemas is the registry of the API's schemas. In the OpenAPI document, the schemas include the
// limits of each value. The library huma checks a request body only against the shapes, which are
// schemas without limits. The shapes describe JSON types and required members, and say whether
// unknown members are allowed. The method Validate of the request checks the limits, and reports
// all invalid fields at once.
type schemas struct {
	huma.Registry
	shapes map[string]*huma.Schema // by reference
}

func newSchemas() schemas {
	return schemas{huma.NewMapRegistry(schemaPrefix, huma.DefaultSchemaNamer), map[string]*huma.Schema{}}
}

// SchemaFromRef returns the shape of the schema with the given reference. A shape is the schema
// without its limits. Before the call of fillShapes, SchemaFromRef returns the schema itself.
func (s schemas) SchemaFromRef(ref string) *huma.Schema {
	if shape, ok := s.shapes[ref]; ok {
		return shape
	}
	return s.Registry.SchemaFromRef(ref)
}

// MarshalJSON writes the schemas for the OpenAPI document.
func (s schemas) MarshalJSON() ([]byte, error) { return json.Marshal(s.Map()) }

// fillShapes makes the shapes of all schemas. The caller must call fillShapes
// after the registration of all routes, and before the first request.
func (s schemas) fillShapes() {
	for name, schema := range s.Map() {
		s.shapes[schemaPrefix+name] = shapeOf(schema)
	}
}

// shapeOf returns s without the limits of its values.
func shapeOf(s *huma.Schema) *huma.Schema {
	if s == nil {
		return nil
	}
	shape := &huma.Schema{
		Type: s.Type, Ref: s.Ref, Nullable: s.Nullable, Format: s.Format, ContentEncoding: s.ContentEncoding,
		Required: s.Required, AdditionalProperties: s.AdditionalProperties, Items: shapeOf(s.Items),
	}
	if values, ok := s.AdditionalProperties.(*huma.Schema); ok {
		shape.AdditionalProperties = shapeOf(values)
	}
	if s.Properties != nil {
		shape.Properties = map[string]*huma.Schema{}
	}
	for name, property := range s.Properties {
		shape.Properties[name] = shapeOf(property)
	}
	if s.Type == huma.TypeInteger {
		// These bounds are the limits of the field's Go type, not limits of the API. If a number is
		// outside the bounds, huma's error names the field. The JSON decoder also refuses such a
		// number, but its error does not name the field.
		shape.Minimum, shape.Maximum = new(-0x1p63), new(0x1p63)
		if s.Minimum != nil && s.Maximum == nil { // unsigned
			shape.Minimum, shape.Maximum = s.Minimum, new(0x1p64)
		}
	}
	shape.PrecomputeMessages()
	return shape
}
