package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// Use is the amount of a quota that a resource uses. An instance uses 1 of the quota "instances". A
// disk uses 1 of the quota "disks". For each GiB of its size, it also uses 1 of the quota
// "diskGiB".
type Use struct {
	Name cloudsim.QuotaName
	N    int64
}

// One returns a function for the field Uses of a Table. With this function, each resource uses 1 of
// the given quota.
func One[T any](name cloudsim.QuotaName) func(*T) []Use {
	return func(*T) []Use { return []Use{{name, 1}} }
}

var bucketUsage = []byte("usage")

func usageKey(project cloudsim.ProjectID, name cloudsim.QuotaName) []byte {
	return []byte(string(project) + "\x00" + string(name))
}

// Used returns the part of a quota that the resources of a project use. Used is fast, because it
// reads only the stored sum of the uses. Each transaction that changes a resource updates this sum.
func (t *Tx) Used(project cloudsim.ProjectID, name cloudsim.QuotaName) int64 {
	b := t.read(bucketUsage)
	if b == nil {
		return 0
	}
	raw := b.Get(usageKey(project, name))
	if raw == nil {
		return 0
	}
	return int64(fromU64(raw))
}

func (t *Tx) use(project cloudsim.ProjectID, name cloudsim.QuotaName, n int64) error {
	b, err := t.write(bucketUsage)
	if err != nil {
		return err
	}
	key, sum := usageKey(project, name), t.Used(project, name)+n
	if sum == 0 {
		return b.Delete(key)
	}
	return b.Put(key, u64(uint64(sum)))
}

// recount updates the counts of quotas after a change of a resource. It
// subtracts the uses in oldTrace and adds the uses in newTrace. For a new
// resource, oldTrace is zero. For a deleted resource, newTrace is zero.
func (t *Tx) recount(oldTrace, newTrace trace) error {
	if oldTrace.project == newTrace.project && slices.Equal(oldTrace.uses, newTrace.uses) {
		return nil // the change does not affect quotas, which is the usual case
	}
	add := func(left trace, sign int64) error {
		for _, u := range left.uses {
			if err := t.use(left.project, u.Name, sign*u.N); err != nil {
				return err
			}
		}
		return nil
	}
	return errors.Join(add(oldTrace, -1), add(newTrace, 1))
}

// CountUses adds the quota uses of all resources in a table to the stored counts. Replace with a
// nil source deletes all stored counts. After this call, call CountUses for each table that Replace
// did not change.
func (t Table[T]) CountUses(tx *Tx) error {
	for v, err := range t.Scan(tx, "", "") {
		if err != nil {
			return err
		}
		if err := tx.recount(trace{}, t.trace(&v)); err != nil {
			return err
		}
	}
	return nil
}

// usage contains the sum of the uses for each usageKey.
type usage map[string]int64

func (u usage) add(project cloudsim.ProjectID, uses []Use) {
	for _, use := range uses {
		u[string(usageKey(project, use.Name))] += use.N
	}
}

// check returns an error for each count in u that differs from the stored count. If stored
// counts are missing from u, check returns an error only for the first of these counts. check
// ignores a quota if u contains no count of this quota for any project.
func (u usage) check(tx *Tx) error {
	var all []error
	names := map[string]bool{}
	for key, n := range u {
		project, name, _ := strings.Cut(key, "\x00")
		names[name] = true
		if have := tx.Used(cloudsim.ProjectID(project), cloudsim.QuotaName(name)); have != n {
			all = append(all, fmt.Errorf("project %s uses %d of quota %s, but the stored count is %d", project, n, name, have))
		}
	}
	b := tx.read(bucketUsage)
	if b == nil {
		return errors.Join(all...)
	}
	return errors.Join(append(all, b.ForEach(func(k, _ []byte) error {
		if project, name, _ := strings.Cut(string(k), "\x00"); names[name] && u[string(k)] == 0 {
			return fmt.Errorf("a count of quota %s is stored for project %s, but no resource of the project uses this quota", name, project)
		}
		return nil
	}))...)
}
