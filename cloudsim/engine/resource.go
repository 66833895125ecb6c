package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// update runs fn in one write transaction. It gets the call from ctx, and records this call as the
// cause of the changes. It returns NotFound if the project of the call was deleted after Authorize.
func (c *core) update(ctx context.Context, fn func(*store.Tx, Call) error) error {
	call, err := callOf(ctx)
	if err != nil {
		return err
	}
	return c.store.Update(call.RequestID, func(tx *store.Tx) error {
		if call.Project != "" && !projects.Has(tx, string(call.Project)) {
			return cloudsim.Errorf(cloudsim.NotFound, "project %s does not exist any more", call.Project)
		}
		tx.Caller, tx.Cause = call.Caller, call.Operation
		return fn(tx, call)
	})
}

// get returns a resource that the call may see. For any other resource it returns NotFound, so that
// a caller cannot find out which ids exist in other projects.
func get[T any](tx *store.Tx, call Call, t store.Table[T], id string) (T, error) {
	v, err := getAt(tx, call, t, id)
	if err == nil && !call.canSee(t.Meta(&v)) {
		var none T
		return none, cloudsim.Errorf(cloudsim.NotFound, "no %s %s", t.Kind, id)
	}
	return v, err
}

// getAt returns a resource. If a stale-read fault has hit the call, getAt returns an earlier
// version of the resource (see the function Under).
func getAt[T any](tx *store.Tx, call Call, t store.Table[T], id string) (v T, err error) {
	if call.asOf.IsZero() {
		return t.Get(tx, id)
	}
	p, err := pastOf(tx, t, call.asOf)
	if err != nil {
		return v, err
	}
	return p.get(tx, t, id)
}

// read returns the result of get for the given id. It runs get in a new read transaction.
func read[T any](ctx context.Context, c *core, t store.Table[T], id string) (v T, err error) {
	call, err := callOf(ctx)
	if err != nil {
		return v, err
	}
	err = c.store.View(func(tx *store.Tx) error {
		v, err = get(tx, call, t, id)
		return err
	})
	return v, err
}

// networked is a resource that belongs to networks. An instance can be in several networks.
type networked interface {
	IsIn(id cloudsim.NetworkID) bool
}

// listPage returns one page of a table. The function getZone returns the zone of a resource. For
// kinds without zones, getZone is nil.
func listPage[T any](ctx context.Context, c *core, t store.Table[T], o cloudsim.ListOptions, getZone func(*T) string) (l cloudsim.List[T], err error) {
	if o.After != "" && t.Prefix != "" && !strings.HasPrefix(o.After, t.Prefix+"-") {
		return l, cloudsim.InvalidField("after", "must be the value of the field 'next' of the previous page, which is the id of a listed resource; got "+strconv.Quote(cloudsim.Clip(o.After)))
	}
	call, err := callOf(ctx)
	if err != nil {
		return l, err
	}
	limit := o.Limit
	if limit <= 0 {
		limit = cloudsim.DefaultPageSize
	}
	limit = min(limit, cloudsim.MaxPageSize)
	match := func(v *T) bool {
		if o.Network != "" {
			if in, ok := any(*v).(networked); !ok || !in.IsIn(o.Network) {
				return false
			}
		}
		if len(o.Instances) > 0 && !slices.ContainsFunc(indexValues(t, byInstance, v), func(id string) bool { return slices.Contains(o.Instances, cloudsim.InstanceID(id)) }) {
			return false
		}
		if o.Kind != "" {
			if r, ok := any(*v).(interface{ RecordKind() string }); !ok || r.RecordKind() != o.Kind {
				return false
			}
		}
		if o.Target != "" || o.State != "" {
			op, ok := any(*v).(cloudsim.Operation)
			if !ok || o.Target != "" && op.Target != o.Target || o.State != "" && string(op.State) != o.State {
				return false
			}
		}
		m := t.Meta(v)
		if !call.canSee(m) || o.Name != "" && m.Name != o.Name || o.Zone != "" && (getZone == nil || getZone(v) != o.Zone) {
			return false
		}
		for k, want := range o.Labels {
			if have, ok := m.Labels[k]; !ok || have != want {
				return false
			}
		}
		return true
	}
	err = c.store.View(func(tx *store.Tx) error {
		l = cloudsim.List[T]{Items: []T{}, Revision: tx.Revision()}
		all := rows(tx, call, t, o)
		if !call.asOf.IsZero() {
			p, err := pastOf(tx, t, call.asOf)
			if err != nil {
				return err
			}
			l.Revision, all = p.rev, p.rows(tx, t, projectToList(call, t), o)
		}
		for v, err := range all {
			if err != nil {
				return err
			}
			if !match(&v) {
				continue
			}
			if len(l.Items) == limit {
				l.Next = t.ID(&l.Items[limit-1])
				return nil
			}
			if t.Public != nil {
				v = t.Public(v)
			}
			l.Items = append(l.Items, v)
		}
		return nil
	})
	return l, err
}

// indexValues returns the values by which an index of the table finds resource v. It
// returns nil if the table does not have this index.
func indexValues[T any](t store.Table[T], index string, v *T) []string {
	if of := t.Index[index]; of != nil {
		return of(v)
	}
	return nil
}

// projectToList returns the project to which a list call for table t is limited, or "" for all
// projects.
func projectToList[T any](call Call, t store.Table[T]) cloudsim.ProjectID {
	if t.Prefix == "" {
		return "" // resources of the catalogue belong to no project
	}
	return call.Project
}

// rows yields all resources that match the options o. It may also yield resources that do not
// match, so the caller must check each resource. If an index fits the options, rows reads only this
// index. Otherwise it reads all resources of the project, or of all projects.
func rows[T any](tx *store.Tx, call Call, t store.Table[T], o cloudsim.ListOptions) func(func(T, error) bool) {
	project := projectToList(call, t)
	if o.Source != "" {
		if t.Index[bySource] == nil {
			return func(func(T, error) bool) {}
		}
		return t.Find(tx, bySource, o.Source, o.After)
	}
	if len(o.Instances) > 0 && t.Index[byInstance] != nil {
		var ids []string
		for _, id := range o.Instances {
			ids = append(ids, string(id))
		}
		return t.FindAny(tx, byInstance, ids, o.After)
	}
	if t.Kind == cloudsim.KindRecord { // records of different kinds can have the same name
		switch {
		case o.Kind == "" || project == "":
			return t.Scan(tx, project, o.After)
		case o.Name != "":
			return t.Find(tx, byRecordName, recordKey(project, o.Kind, o.Name), o.After)
		}
		return t.Find(tx, byRecordKind, recordKey(project, o.Kind, ""), o.After)
	}
	if o.Name == "" || project == "" || o.After != "" {
		return t.Scan(tx, project, o.After)
	}
	return func(yield func(T, error) bool) {
		v, err := t.Named(tx, project, o.Name)
		if errors.Is(err, cloudsim.NotFound) {
			return
		}
		yield(v, err)
	}
}

// projectOf returns the project in which a call creates resources: the project of the call, or the
// default project if the call is for all projects.
func (e *Engine) projectOf(tx *store.Tx, call Call) (cloudsim.ProjectID, error) {
	if call.Project != "" {
		return call.Project, nil
	}
	p, err := e.ensureProject(tx, DefaultProject)
	return p.ID, err
}

// setLabels replaces the labels of a resource. It returns Stale if rev is
// neither 0 nor the revision of the resource.
func setLabels[T any](ctx context.Context, e *Engine, t store.Table[T], id string, labels map[string]string, rev uint64) (v T, err error) {
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		if v, err = get(tx, call, t, id); err != nil {
			return err
		}
		m := t.Meta(&v)
		if rev != 0 && rev != m.Revision {
			return cloudsim.Errorf(cloudsim.Stale, "%s %s is at revision %d, not %d: read it again and repeat the change", t.Kind, id, m.Revision, rev)
		}
		if sameLabels(m.Labels, labels) {
			return nil
		}
		m.Labels = labels
		return t.Put(tx, &v)
	})
	return v, err
}

// sameLabels reports whether the labels are equal. A nil map and an empty map are equal.
func sameLabels(a, b map[string]string) bool { return maps.Equal(a, b) }

// errReferenceNotFound returns the error NotFound for a request in which a field names a resource
// that the caller cannot see. The error contains the field. A client can therefore distinguish this
// error from a NotFound for the resource that the URL path names.
func errReferenceNotFound(field, id, hint string) error {
	reason := id + " does not exist; " + hint
	return &cloudsim.Error{Kind: cloudsim.NotFound, Msg: field + " " + reason, Fields: []cloudsim.FieldError{{Field: field, Reason: reason}}}
}

// errNameTaken returns an Exists error. The error says that a resource with the requested name
// already exists, and how this resource differs from the request.
func errNameTaken(kind cloudsim.ResourceKind, name, id, differs string) error {
	noun := splitCamelCase(string(kind))
	return cloudsim.Errorf(cloudsim.Exists, "%s %q already exists (%s), but with %s: use another name, or delete the existing %s first", noun, name, id, differs, noun)
}

// checkSecretName checks the name of a new token or access key. It returns Exists if the name is
// not empty and is in use. The parameters id and err are the results of a search for the name.
func checkSecretName(kind cloudsim.ResourceKind, name, id string, err error) error {
	switch {
	case errors.Is(err, cloudsim.NotFound), err == nil && name == "":
		return nil
	case err != nil:
		return err
	}
	return errNameTaken(kind, name, id, "a secret that the cloud cannot show again")
}

var capital = regexp.MustCompile("[A-Z]")

// splitCamelCase returns the words of a name in camel case. For example, it returns "load balancer"
// for "loadBalancer".
func splitCamelCase(name string) string {
	return strings.ToLower(capital.ReplaceAllString(name, " $0"))
}

// isIDForm reports whether a name has the form of the ids of table t.
func isIDForm[T any](t store.Table[T], name string) bool {
	number, ok := strings.CutPrefix(name, t.Prefix+"-")
	return ok && len(number) >= 6 && strings.Trim(number, "0123456789abcdef") == ""
}

func errFormOfID(kind cloudsim.ResourceKind, name string) error {
	return cloudsim.InvalidField("name", fmt.Sprintf("must not have the form of the id of a %s, because callers select a %s by its name or its id; got %q", kind, kind, name))
}
