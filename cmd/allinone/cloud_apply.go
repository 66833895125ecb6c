package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// appliable are the lists that a file may have, in the order in which they are
// made: what is named comes before what names it.
// What can be updated is put whole; everything else of a resource stays as it
// was made.
var appliable = []struct {
	key, path string
	update    []string
}{
	{"networks", "/v1/networks", []string{"labels", "podRanges", "maxRoutes"}},
	{"subnets", "/v1/subnets", nil},
	{"instances", "/v1/instances", []string{"labels"}},
	{"addresses", "/v1/addresses", nil},
	{"routes", "/v1/routes", nil},
	{"disks", "/v1/disks", nil},
	{"loadBalancers", "/v1/load-balancers", []string{
		"labels", "listeners", "targets", "healthCheck", "sourceRanges", "affinity", "affinityTimeoutSeconds", "drainTimeoutSeconds",
	}},
	{"faults", "/v1/faults", nil},
	{"holds", "/v1/holds", nil},
}

// references are the members that hold an id: where what they name is listed.
var references = map[string]string{
	"network": "/v1/networks", "subnet": "/v1/subnets", "instance": "/v1/instances", "target": "/v1/instances", "nextHop": "/v1/instances",
	"serviceAccount": "/v1/service-accounts",
}

const maxApplyFile = 4 << 20

func newApplyCommand(c *cloudCLI) *cobra.Command {
	var o output
	var file string
	var dryRun bool
	cmd := &cobra.Command{
		Use: "apply -f FILE", Short: "Make the cloud what a file describes",
		Long: `Make the cloud what a file describes. The file is YAML: lists of resources in the
words of the API, by their plural. One resource is named from another by its name.

What is missing is created. What exists and differs is updated where the API can:
labels of instances, networks and load balancers, what load balancers forward and
how, pod ranges and limits of networks. Any other difference is an error, and
nothing of that resource is changed. What the file does not say stays as it is, and
so do labels that it does not name. A number that is 0 and a text that is empty ask
for the default. Applying a file again does nothing.

'allinone cloudsim --apply FILE' does the same before the cloud is ready.`,
		Example: `  # cloud.yaml
  #   instances:
  #   - {name: node-1, zone: sim-1a, type: small}
  #   holds:
  #   - {name: slow, kind: instance, verb: stop, target: node-1}
  allinone cloud apply -f cloud.yaml --dry-run
  allinone cloud apply -f cloud.yaml`,
		Args: cobra.NoArgs,
		RunE: c.run(func(ctx context.Context, cl *client.Client, _ []string) error {
			wanted, err := readApply(file)
			if err != nil {
				return err
			}
			done, err := applyAll(ctx, cl, wanted, dryRun)
			return errors.Join(appliedPrinter(c, o).list(done), err)
		}),
	}
	o.flags(cmd)
	cmd.Flags().StringVarP(&file, "file", "f", "", "`FILE` to apply")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be done")
	return cmd
}

// applied is what became of one resource of a file.
type applied struct {
	List   string `json:"list"`
	Name   string `json:"name"`
	Result string `json:"result"`           // created, unchanged, updated; would be created, would be updated
	Fields string `json:"fields,omitempty"` // that were updated
}

func appliedPrinter(c *cloudCLI, o output) printer[applied] {
	return printer[applied]{output: o, w: c.stdout, id: func(a applied) string { return a.Name }, columns: []column[applied]{
		{head: "LIST", cell: func(a applied) string { return a.List }},
		{head: "NAME", cell: func(a applied) string { return a.Name }},
		{head: "RESULT", cell: func(a applied) string { return a.Result }},
		{head: "FIELDS", cell: func(a applied) string { return a.Fields }},
	}}
}

// item is one resource of a file.
type item struct {
	file, list, path string
	node             *yaml.Node
	body             map[string]any
	name             string
	update           []string // members that can be updated
}

// at says where in the file something about a field is: at the field, or at
// what it would be in.
func (i item) at(field string) string {
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

// member is what a mapping has under a key, or a list at an index; nil for none.
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

// locate is err with the places in the file that it is about.
func (i item) locate(err error) error {
	e, ok := errors.AsType[*cloudsim.Error](err)
	if !ok || len(e.Fields) == 0 {
		return fmt.Errorf("%s: %w", i.at(""), err)
	}
	var all []error
	for _, f := range e.Fields {
		all = append(all, cloudsim.Errorf(e.Kind, "%s: %s %s", i.at(f.Field), f.Field, f.Reason))
	}
	return oneOrMany(all)
}

// readApply reads a file, or says of all of it what is wrong where.
func readApply(file string) (all []item, err error) {
	if file == "" {
		return nil, badFlag("file", file, "a file to apply")
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, cloudsim.Errorf(cloudsim.Invalid, "--file: %w", err)
	}
	if info.Size() > maxApplyFile {
		return nil, cloudsim.Errorf(cloudsim.Invalid, "%s has %d bytes; at most %d are read", file, info.Size(), maxApplyFile)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseApply(file, raw)
}

func parseApply(file string, raw []byte) ([]item, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return nil, cloudsim.Errorf(cloudsim.Invalid, "%s: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	return itemsOf(file, doc.Content[0])
}

func itemsOf(file string, top *yaml.Node) (all []item, err error) {
	bad := func(n *yaml.Node, format string, args ...any) error {
		return cloudsim.Errorf(cloudsim.Invalid, "%s:%d: %s", file, n.Line, fmt.Sprintf(format, args...))
	}
	if top.Kind != yaml.MappingNode {
		return nil, bad(top, "want lists of resources by their plural, such as instances")
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
			i := item{file: file, list: kind.key, path: kind.path, node: n, update: kind.update}
			err := n.Decode(&i.body)
			if i.name, _ = i.body["name"].(string); err != nil || i.name == "" {
				wrong = append(wrong, bad(n, "%s: want a resource with a name", kind.key))
				continue
			}
			all = append(all, i)
		}
	}
	for k := 0; k < len(top.Content); k += 2 {
		if key := top.Content[k]; !slices.Contains(known, key.Value) {
			wrong = append(wrong, bad(key, "%q is no list that can be applied; there are: %s", key.Value, strings.Join(known, ", ")))
		}
	}
	return all, oneOrMany(wrong)
}

// applyAll applies one after the other, and stops at the first that fails.
func applyAll(ctx context.Context, cl *client.Client, wanted []item, dryRun bool) (done []applied, err error) {
	later := map[string]bool{} // what a dry run would have made
	for _, i := range wanted {
		a, err := i.apply(ctx, cl, dryRun, later)
		if err != nil {
			return done, i.locate(err)
		}
		done = append(done, a)
	}
	return done, nil
}

func (i item) apply(ctx context.Context, cl *client.Client, dryRun bool, later map[string]bool) (a applied, err error) {
	a = applied{List: i.list, Name: i.name}
	if err := resolve(ctx, cl, i.body, later); err != nil {
		return a, err
	}
	have, err := named(ctx, cl, i.path, i.name)
	if err != nil {
		return a, err
	}
	raw, err := json.Marshal(i.body)
	if err != nil {
		return a, cloudsim.Errorf(cloudsim.Invalid, "%w", err)
	}
	switch {
	case have != nil:
		return i.change(ctx, cl, dryRun, a, have, raw)
	case dryRun:
		later[i.path+" "+i.name] = true
		a.Result = "would be created"
		return a, nil
	}
	a.Result = "created"
	_, err = cl.Raw(ctx, "POST", i.path, raw)
	return a, err
}

// change updates what exists and differs, or says that it cannot.
func (i item) change(ctx context.Context, cl *client.Client, dryRun bool, a applied, have map[string]any, raw []byte) (applied, error) {
	want := map[string]any{}
	if err := json.Unmarshal(raw, &want); err != nil {
		return a, err
	}
	fields := differing(have, want, i.update)
	if fixed := slices.DeleteFunc(slices.Clone(fields), func(f string) bool { return slices.Contains(i.update, f) }); len(fixed) > 0 {
		return a, differs(have, fixed)
	}
	a.Result, a.Fields = "unchanged", strings.Join(fields, ", ")
	if len(fields) == 0 {
		return a, nil
	}
	if a.Result = "would be updated"; dryRun {
		return a, nil
	}
	a.Result = "updated"
	body := map[string]any{}
	for _, k := range i.update {
		if v := merged(have[k], want[k]); v != nil {
			body[k] = v
		}
	}
	put, err := json.Marshal(body)
	if err != nil {
		return a, err
	}
	id, _ := have["id"].(string)
	answer, err := cl.Raw(ctx, "PUT", i.path+"/"+url.PathEscape(id), put)
	if err != nil {
		return a, err
	}
	now := map[string]any{}
	if err := json.Unmarshal(answer, &now); err != nil {
		return a, err
	}
	if now["revision"] == have["revision"] { // a default was asked for, and is what it has
		a.Result, a.Fields = "unchanged", ""
	}
	return a, nil
}

// merged is what is wanted, with what the cloud has besides.
func merged(have, want any) any {
	if want == nil {
		return have
	}
	is, ok1 := have.(map[string]any)
	more, ok2 := want.(map[string]any)
	if !ok1 || !ok2 {
		return want
	}
	all := maps.Clone(is)
	for k, v := range more {
		all[k] = merged(is[k], v)
	}
	return all
}

// named is the resource of that name as the API shows it, or nil.
func named(ctx context.Context, cl *client.Client, path, name string) (map[string]any, error) {
	raw, err := cl.Raw(ctx, "GET", path+"?name="+url.QueryEscape(name), nil)
	if err != nil {
		return nil, err
	}
	var l cloudsim.List[map[string]any]
	if err := json.Unmarshal(raw, &l); err != nil || len(l.Items) == 0 {
		return nil, err
	}
	return l.Items[0], nil
}

// differing are the members that the file gives and the cloud has otherwise. One
// that the cloud does not show differs if it can be updated; it may be of the
// request alone if not. What cannot be updated was made with the default where
// the file asks for that.
func differing(have, want map[string]any, update []string) (fields []string) {
	for k, v := range want {
		is, shown := have[k]
		canUpdate := slices.Contains(update, k)
		if !canUpdate && (!shown || v == "" || v == 0.0) {
			continue
		}
		if !covers(is, v) {
			fields = append(fields, k)
		}
	}
	slices.Sort(fields)
	return fields
}

// differs is Exists for fields that cannot be updated.
func differs(have map[string]any, fields []string) error {
	e := &cloudsim.Error{Kind: cloudsim.Exists, Msg: "it exists and differs"}
	for _, k := range fields {
		shown, _ := json.Marshal(have[k])
		e.Fields = append(e.Fields, cloudsim.FieldError{Field: k, Reason: fmt.Sprintf("is %.200s in the cloud, and cannot be updated", shown)})
	}
	return e
}

// covers reports whether the cloud has all that is wanted: it may have more,
// which it filled in. It does not show what is zero, and null asks for nothing.
func covers(have, want any) bool {
	switch want := want.(type) {
	case nil:
		return true
	case map[string]any:
		is, ok := have.(map[string]any)
		ok = ok || have == nil
		for k, v := range want {
			ok = ok && covers(is[k], v)
		}
		return ok
	case []any:
		is, ok := have.([]any)
		ok = (ok || have == nil) && len(is) == len(want)
		for n := range want {
			ok = ok && covers(is[n], want[n])
		}
		return ok
	case string:
		is, ok := have.(string)
		return (ok || have == nil) && (is == want || sameInstant(is, want))
	}
	if have == nil {
		return want == 0.0 || want == false
	}
	return reflect.DeepEqual(have, want)
}

// sameInstant reports whether both are the same time in other words.
func sameInstant(a, b string) bool {
	x, errX := time.Parse(time.RFC3339, a)
	y, errY := time.Parse(time.RFC3339, b)
	return errX == nil && errY == nil && x.Equal(y)
}

// resolve puts ids where the file names resources by name.
func resolve(ctx context.Context, cl *client.Client, v any, later map[string]bool) error {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			if err := resolve(ctx, cl, one, later); err != nil {
				return err
			}
		}
	case map[string]any:
		for k, one := range v {
			if k == "labels" {
				continue // whatever it says is a label
			}
			name, isName := one.(string)
			path, isReference := references[k]
			if !isName || !isReference || name == "" || later[path+" "+name] {
				if err := resolve(ctx, cl, one, later); err != nil {
					return err
				}
				continue
			}
			found, err := named(ctx, cl, path, name)
			if err != nil {
				return err
			}
			if id, ok := found["id"].(string); ok {
				v[k] = id // else it is an id already, or the cloud says that there is none
			}
		}
	}
	return nil
}
