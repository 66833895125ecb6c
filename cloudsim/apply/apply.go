// Package apply creates and updates the resources that a YAML file describes. For this, it
// calls the cloud's API as a client.
package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	strictjson "sigs.k8s.io/json"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// appliable contains the lists of resources that a file may have. The order of the lists is the
// order of creation: a resource comes before the resources that refer to it. The field update
// contains the JSON members of a resource that an update can change.
var appliable = []struct {
	key, path string
	check     func(raw []byte, isNew bool) error // checks a request before the client sends it
	hasMember func(member string) bool           // reports whether the resource has the member; some members exist only in requests
	types     string                             // API path of the list of types, for resources with a type
	update    []string
}{
	{"networks", "/v1/networks", checkRequest[cloudsim.CreateNetwork], hasMember[cloudsim.Network], "", []string{"labels", "podRanges", "maxRoutes"}},
	{"subnets", "/v1/subnets", checkRequest[cloudsim.CreateSubnet], hasMember[cloudsim.Subnet], "", nil},
	{"instances", "/v1/instances", checkRequest[cloudsim.CreateInstance], hasMember[cloudsim.Instance], "/v1/instance-types", []string{"labels"}},
	{"addresses", "/v1/addresses", checkRequest[cloudsim.CreateAddress], hasMember[cloudsim.Address], "", nil},
	{"routes", "/v1/routes", checkRequest[cloudsim.CreateRoute], hasMember[cloudsim.Route], "", nil},
	{"disks", "/v1/disks", checkRequest[cloudsim.CreateDisk], hasMember[cloudsim.Disk], "/v1/disk-types", []string{"labels"}},
	{"loadBalancers", "/v1/load-balancers", checkRequest[cloudsim.CreateLoadBalancer], hasMember[cloudsim.LoadBalancer], "", []string{
		"labels", "families", "addresses", "listeners", "targets", "healthCheck", "sourceRanges", "affinity", "affinityTimeoutSeconds", "drainTimeoutSeconds",
	}},
	{"faults", "/v1/faults", checkRequest[cloudsim.CreateFault], hasMember[cloudsim.Fault], "", nil},
	{"holds", "/v1/holds", checkRequest[cloudsim.CreateHold], hasMember[cloudsim.Hold], "", nil},
}

// referenceLists has a key for each JSON member in which a file can name another resource. The
// value is the API path that lists the resources to which the member can refer.
var referenceLists = map[string]string{
	"network": "/v1/networks", "subnet": "/v1/subnets", "instance": "/v1/instances", "nextHop": "/v1/instances",
	"serviceAccount": "/v1/service-accounts",
}

// Result describes the effect of the function All on one resource of a file.
type Result struct {
	List   string `json:"list"`
	Name   string `json:"name"`
	Result string `json:"result"`           // created, unchanged, updated; would be created, would be updated
	Fields string `json:"fields,omitempty"` // the updated fields
}

// All applies the resources of a file. First it checks all resources of the file. This check
// changes nothing in the cloud. Then All applies one resource after the other, and stops at the
// first failure. If dryRun is true, All ends after the check, and returns the planned changes.
func All(ctx context.Context, cl *client.Client, wanted []item, dryRun bool) (done []Result, err error) {
	later := map[string]bool{} // resources and types that exist, or that the apply will create
	var wrong []error
	for _, i := range wanted {
		a, err := i.withNewBody().apply(ctx, cl, true, later)
		if err != nil {
			wrong = append(wrong, i.addPosition(err))
		}
		done = append(done, a)
	}
	if len(wrong) > 0 {
		return nil, cloudsim.OneOrMany(wrong)
	}
	if dryRun {
		return done, nil
	}
	done = nil
	for _, i := range wanted {
		a, err := i.apply(ctx, cl, false, map[string]bool{})
		if err != nil {
			return done, i.addPosition(err)
		}
		done = append(done, a)
	}
	return done, nil
}

// checkRequest decodes a request of type T, without a call to the cloud. It returns Invalid if the
// request has an unknown member or a value of a wrong type. The names of members are
// case-sensitive. If the resource is new, checkRequest also validates the request. It does not
// validate a request for an existing resource, because the file may leave out required members.
func checkRequest[T interface{ Validate() error }](raw []byte, isNew bool) error {
	var req T
	unknown, err := strictjson.UnmarshalStrict(raw, &req, strictjson.DisallowUnknownFields)
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return cloudsim.InvalidField(t.Field, "has the wrong type, got "+t.Value)
	}
	if err != nil {
		return cloudsim.Errorf(cloudsim.Invalid, "cannot be read: %w", err)
	}
	if len(unknown) > 0 {
		wrong := &cloudsim.Error{Kind: cloudsim.Invalid, Msg: "has unknown fields"}
		for _, u := range unknown {
			if f, ok := errors.AsType[strictjson.FieldError](u); ok {
				wrong.Fields = append(wrong.Fields, cloudsim.FieldError{Field: f.FieldPath(), Reason: "is an unknown field"})
			}
		}
		return wrong
	}
	if !isNew {
		return nil
	}
	return req.Validate()
}

// hasMember reports whether the JSON object of a resource of type T can contain the member.
func hasMember[T any](member string) bool {
	return slices.ContainsFunc(reflect.VisibleFields(reflect.TypeFor[T]()), func(f reflect.StructField) bool {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return name == member
	})
}

// checkReferences returns Invalid if the request names a zone, region or type that does
// not exist.
func (i item) checkReferences(ctx context.Context, cl *client.Client, found map[string]bool) error {
	wrong := &cloudsim.Error{Kind: cloudsim.Invalid, Msg: "names resources that do not exist"}
	for _, m := range []struct{ field, path string }{{"zone", "/v1/zones"}, {"region", "/v1/regions"}, {"type", i.types}} {
		name, _ := i.body[m.field].(string)
		if name == "" || m.path == "" || found[m.path+" "+name] {
			continue
		}
		have, err := findByName(ctx, cl, m.path, name)
		if err != nil {
			return err
		}
		if have == nil {
			wrong.Fields = append(wrong.Fields, cloudsim.FieldError{Field: m.field, Reason: fmt.Sprintf("names %q, which does not exist", name)})
		}
		found[m.path+" "+name] = have != nil
	}
	if len(wrong.Fields) > 0 {
		return wrong
	}
	return nil
}

func (i item) apply(ctx context.Context, cl *client.Client, dryRun bool, later map[string]bool) (a Result, err error) {
	a = Result{List: i.list, Name: i.name}
	if err := errors.Join(i.resolveTarget(ctx, cl, later), resolve(ctx, cl, i.body, later)); err != nil {
		return a, err
	}
	existing, err := findByName(ctx, cl, i.path, i.name)
	if err != nil {
		return a, err
	}
	raw, err := json.Marshal(i.body)
	if err != nil {
		return a, cloudsim.Errorf(cloudsim.Invalid, "%w", err)
	}
	if existing != nil {
		if err := i.check(raw, false); err != nil {
			return a, err
		}
	}
	for tries := 1; existing != nil; tries++ {
		a, err := i.updateExisting(ctx, cl, dryRun, a, existing, raw)
		if !errors.Is(err, cloudsim.Stale) || tries == staleTries {
			return a, err
		}
		if existing, err = findByName(ctx, cl, i.path, i.name); err != nil { // another caller has changed the resource
			return a, err
		}
	}
	if dryRun {
		later[i.path+" "+i.name] = true
		a.Result = "would be created"
		if err := i.check(raw, true); err != nil {
			return a, err
		}
		return a, i.checkReferences(ctx, cl, later)
	}
	a.Result = "created"
	_, err = cl.Do(ctx, "POST", i.path, raw)
	return a, err
}

// staleTries is the largest number of attempts of an update. An attempt fails if another caller
// changes the resource at the same time.
const staleTries = 10

// updateExisting updates an existing resource if this resource differs from the file. If dryRun is
// true, it only compares. It returns Exists if the file and the cloud have different values of a
// member that an update cannot change. The parameter existing is the resource as the cloud returned
// it before this call. If another caller has changed the resource since then, updateExisting
// returns Stale.
func (i item) updateExisting(ctx context.Context, cl *client.Client, dryRun bool, a Result, existing map[string]any, raw []byte) (Result, error) {
	desired := map[string]any{}
	if err := json.Unmarshal(raw, &desired); err != nil {
		return a, err
	}
	if i.list == "loadBalancers" {
		setAddresses(existing, desired)
	}
	fields := i.differingMembers(existing, desired)
	if fixed := slices.DeleteFunc(slices.Clone(fields), func(f string) bool { return slices.Contains(i.update, f) }); len(fixed) > 0 {
		return a, differenceError(existing, fixed)
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
		if v := mergeValues(existing[k], desired[k]); v != nil {
			body[k] = v
		}
	}
	put, err := json.Marshal(body)
	if err != nil {
		return a, err
	}
	id, _ := existing["id"].(string)
	rev, _ := existing["revision"].(float64)
	answer, err := cl.Replace(ctx, i.path+"/"+url.PathEscape(id), put, uint64(rev))
	if err != nil {
		return a, err
	}
	now := map[string]any{}
	if err := json.Unmarshal(answer, &now); err != nil {
		return a, err
	}
	if now["revision"] == existing["revision"] { // the file asks for a default value, which the resource already has
		a.Result, a.Fields = "unchanged", ""
	}
	return a, nil
}

// mergeValues returns the value of a member after an update: current is the value in the cloud, and
// desired is the value in the file. If both values are JSON objects, the result is a copy of
// current, in which mergeValues updates the members that desired contains. If desired is nil, the
// result is current. In all other cases, the result is desired.
func mergeValues(current, desired any) any {
	if desired == nil {
		return current
	}
	is, ok1 := current.(map[string]any)
	more, ok2 := desired.(map[string]any)
	if !ok1 || !ok2 {
		return desired
	}
	all := maps.Clone(is)
	for k, v := range more {
		all[k] = mergeValues(is[k], v)
	}
	return all
}

// findByName returns the decoded JSON object of the resource with the given name. It returns nil if
// no resource has this name.
func findByName(ctx context.Context, cl *client.Client, path, name string) (map[string]any, error) {
	raw, err := cl.Do(ctx, "GET", path+"?name="+url.QueryEscape(name), nil)
	if err != nil {
		return nil, err
	}
	var l cloudsim.List[map[string]any]
	if err := json.Unmarshal(raw, &l); err != nil || len(l.Items) == 0 {
		return nil, err
	}
	return l.Items[0], nil
}

// setAddresses converts the members "families" and "addresses" of existing to the format of
// requests. The parameter existing is the load balancer as the cloud returned it. There are two
// special cases:
//
//   - If the file has no addresses, setAddresses deletes "addresses" from existing, so that the
//     update contains no addresses. Otherwise an update that removes a family would contain the
//     address of the removed family. The cloud would refuse this update.
//   - If the load balancer has all addresses of the file, setAddresses replaces "addresses" in
//     existing with the list of the file. Apply then ignores the other addresses of the load
//     balancer, e.g. the address of the second family.
func setAddresses(existing, desired map[string]any) {
	current, _ := existing["addresses"].([]any)
	var families, ips []any
	for _, c := range current {
		if a, ok := c.(map[string]any); ok {
			families, ips = append(families, a["family"]), append(ips, a["ip"])
		}
	}
	existing["families"], existing["addresses"] = families, ips
	wanted, _ := desired["addresses"].([]any)
	switch {
	case len(wanted) == 0:
		delete(existing, "addresses")
	case !slices.ContainsFunc(wanted, func(ip any) bool { return !slices.Contains(ips, ip) }):
		existing["addresses"] = wanted
	}
}

// differingMembers returns the names of the members that have different values in the file and in
// the cloud. If an update cannot change a member, the function ignores the member in two cases:
//   - The cloud's answer for this kind of resource never contains the member. For example, userData
//     exists only in requests.
//   - The value in the file is "" or 0, which means the default value.
func (i item) differingMembers(current, desired map[string]any) (fields []string) {
	for k, v := range desired {
		if !slices.Contains(i.update, k) && (!i.hasMember(k) || v == "" || v == 0.0) {
			continue
		}
		if !isCovered(current[k], v) {
			fields = append(fields, k)
		}
	}
	slices.Sort(fields)
	return fields
}

func differenceError(existing map[string]any, fields []string) error {
	e := &cloudsim.Error{Kind: cloudsim.Exists, Msg: "a resource with this name exists and differs from the file"}
	for _, k := range fields {
		shown, _ := json.Marshal(existing[k])
		e.Fields = append(e.Fields, cloudsim.FieldError{Field: k, Reason: fmt.Sprintf("is %.200s in the cloud, and cannot be updated: write this value into the file, or delete the resource first", shown)})
	}
	return e
}

// isCovered reports whether current, the value in the cloud, includes desired, the value in the
// file. The value in the cloud may have more members than the value in the file, e.g. default
// values. A null in the file matches any value. If current is nil, the result is true only if
// desired is null, false, 0, "", an empty list, or an object that contains only these values.
func isCovered(current, desired any) bool {
	switch desired := desired.(type) {
	case nil:
		return true
	case map[string]any:
		is, ok := current.(map[string]any)
		ok = ok || current == nil
		for k, v := range desired {
			ok = ok && isCovered(is[k], v)
		}
		return ok
	case []any:
		is, ok := current.([]any)
		ok = (ok || current == nil) && len(is) == len(desired)
		for n := range desired {
			ok = ok && isCovered(is[n], desired[n])
		}
		return ok
	case string:
		is, ok := current.(string)
		return (ok || current == nil) && (is == desired || sameInstant(is, desired))
	}
	if current == nil {
		return desired == 0.0 || desired == false
	}
	return reflect.DeepEqual(current, desired)
}

// sameInstant reports whether a and b are the same time, even if they have different time zones.
func sameInstant(a, b string) bool {
	x, errX := time.Parse(time.RFC3339, a)
	y, errY := time.Parse(time.RFC3339, b)
	return errX == nil && errY == nil && x.Equal(y)
}

// resolveTarget changes only holds and faults. It replaces the name of the target with the target's
// id. If the function TargetID returns NotFound, resolveTarget returns Invalid.
func (i item) resolveTarget(ctx context.Context, cl *client.Client, later map[string]bool) error {
	in, field, of := i.body, "target", ""
	switch i.list {
	case "holds":
		of, _ = i.body["kind"].(string)
	case "faults":
		field = "match.target"
		in, _ = i.body["match"].(map[string]any)
		operation, _ := in["operation"].(string)
		of, _, _ = strings.Cut(operation, ".")
	default:
		return nil
	}
	name, _ := in["target"].(string)
	id, err := TargetID(ctx, cl, of, name, later)
	if errors.Is(err, cloudsim.NotFound) {
		return &cloudsim.Error{Kind: cloudsim.Invalid, Msg: err.Error(), Fields: []cloudsim.FieldError{{Field: field, Reason: "cannot be found: " + err.Error()}}}
	}
	if err == nil && id != name {
		in["target"] = id
	}
	return err
}

// resolve replaces the names of resources in v with the ids of these resources.
// It changes only the members in referenceLists. It keeps a name that it does not find.
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
				continue // labels contain no references
			}
			name, isName := one.(string)
			path, isReference := referenceLists[k]
			if !isName || !isReference || name == "" || later[path+" "+name] {
				if err := resolve(ctx, cl, one, later); err != nil {
					return err
				}
				continue
			}
			found, err := findByName(ctx, cl, path, name)
			if err != nil {
				return err
			}
			if id, ok := found["id"].(string); ok {
				v[k] = id // otherwise the value is an id, or the cloud will report that the resource does not exist
			}
		}
	}
	return nil
}
