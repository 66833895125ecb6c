package apply

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

const maxApplyFile = 4 << 20

// item is one resource of a file.
type item struct {
	file, list, path string
	node             *yaml.Node
	body             map[string]any
	name             string
	check            func(raw []byte, isNew bool) error
	hasMember        func(member string) bool
	types            string
	update           []string // members that can be updated
}

// positionOf returns the position of a field in the file. If the field is missing, the
// result is the position of the object that should contain the field.
func (i item) positionOf(field string) string {
	line := i.node.Line
	n := i.node
	for _, part := range strings.FieldsFunc(field, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		if n = member(n, part); n == nil {
			break
		}
		line = n.Line
	}
	return fmt.Sprintf("%s:%d: %s %s", i.file, line, i.list, i.name)
}

// member returns the value of a key of a mapping, or the element at an index of a list. It returns
// nil if the key or the index does not exist.
func member(n *yaml.Node, part string) *yaml.Node {
	switch n.Kind {
	case yaml.MappingNode:
		for k := 0; k+1 < len(n.Content); k += 2 {
			if n.Content[k].Value == part {
				return n.Content[k+1]
			}
		}
	case yaml.SequenceNode:
		if at, err := strconv.Atoi(part); err == nil && at >= 0 && at < len(n.Content) {
			return n.Content[at]
		}
	}
	return nil
}

// addPosition adds positions in the file to an error about the item i. If the error lists invalid
// fields, the result has one error for each of these fields, with the position of the field.
// Otherwise the result has the position of the item.
func (i item) addPosition(err error) error {
	e, ok := errors.AsType[*cloudsim.Error](err)
	if !ok || len(e.Fields) == 0 {
		return fmt.Errorf("%s: %w", i.positionOf(""), err)
	}
	var all []error
	for _, f := range e.Fields {
		all = append(all, cloudsim.Errorf(e.Kind, "%s: %s %s", i.positionOf(f.Field), f.Field, f.Reason))
	}
	return cloudsim.OneOrMany(all)
}

// Read reads the resources from a file, or from stdin if file is "-". If the file has errors, Read
// returns one error that contains all of them, with their positions. If a document is not valid
// YAML, Read stops, and returns only the error about this document.
func Read(file string, stdin io.Reader) (items []item, err error) {
	if file == "" {
		return nil, cloudsim.Errorf(cloudsim.Invalid, "--file is required: the file to apply, or - for standard input")
	}
	from, name := stdin, "standard input"
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, cloudsim.Errorf(cloudsim.Invalid, "--file: %w", err)
		}
		defer f.Close()
		from, name = f, file
	}
	raw, err := io.ReadAll(io.LimitReader(from, maxApplyFile+1)) // the limit is needed because the file can be an endless device
	if err != nil {
		return nil, err
	}
	if len(raw) > maxApplyFile {
		return nil, cloudsim.Errorf(cloudsim.Invalid, "%s has more than %d bytes, which is the limit: split the file", name, maxApplyFile)
	}
	return parseApply(name, raw)
}

// parseApply reads the resources of all YAML documents in a file. It sorts the resources so that a
// resource comes before the resources that refer to it.
func parseApply(file string, raw []byte) (items []item, err error) {
	d := yaml.NewDecoder(bytes.NewReader(raw))
	var wrong []error
	for {
		var doc yaml.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, cloudsim.Errorf(cloudsim.Invalid, "%s: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
		}
		if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
			continue
		}
		more, err := itemsOf(file, doc.Content[0])
		if err != nil {
			wrong = append(wrong, err)
		}
		items = append(items, more...)
	}
	order := map[string]int{}
	for n, kind := range appliable {
		order[kind.key] = n
	}
	slices.SortStableFunc(items, func(a, b item) int { return order[a.list] - order[b.list] })
	return items, cloudsim.OneOrMany(wrong)
}

func itemsOf(file string, top *yaml.Node) (items []item, err error) {
	bad := func(n *yaml.Node, format string, args ...any) error {
		return cloudsim.Errorf(cloudsim.Invalid, "%s:%d: %s", file, n.Line, fmt.Sprintf(format, args...))
	}
	if top.Kind != yaml.MappingNode {
		return nil, bad(top, "the document must be a mapping with lists of resources, such as instances: [...]")
	}
	var wrong []error
	var known []string
	for _, kind := range appliable {
		known = append(known, kind.key)
		list := member(top, kind.key)
		if list == nil {
			continue
		}
		if list.Kind != yaml.SequenceNode {
			wrong = append(wrong, bad(list, "%s must be a list", kind.key))
			continue
		}
		for _, n := range list.Content {
			i := item{file: file, list: kind.key, path: kind.path, node: n, check: kind.check, hasMember: kind.hasMember, types: kind.types, update: kind.update}
			err := n.Decode(&i.body)
			if i.name, _ = i.body["name"].(string); err != nil || i.name == "" {
				wrong = append(wrong, bad(n, "%s: each item must be a resource with a name%s", kind.key, reasonOf(err)))
				continue
			}
			items = append(items, i)
		}
	}
	seen := map[string]bool{}
	for k := 0; k < len(top.Content); k += 2 {
		key := top.Content[k]
		switch {
		case !slices.Contains(known, key.Value):
			wrong = append(wrong, bad(key, "%q is not a list of resources: use one of: %s", key.Value, strings.Join(known, ", ")))
		case seen[key.Value]:
			wrong = append(wrong, bad(key, "%s is a duplicate key: write one list, or begin another document with ---", key.Value))
		}
		seen[key.Value] = true
	}
	return items, cloudsim.OneOrMany(wrong)
}

func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	return ": " + strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", "")
}

// withNewBody returns a copy of i with a new copy of the body, so that the caller can change
// this body.
func (i item) withNewBody() item {
	i.body = nil
	_ = i.node.Decode(&i.body) // cannot fail, because the node was decoded before
	return i
}
