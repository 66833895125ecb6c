package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// quotaLimits stores the limits that SetQuota has set, by project and quota name.
var quotaLimits = store.Notes[int64]{Name: "quota"}

func quotaKey(project cloudsim.ProjectID, name cloudsim.QuotaName) string {
	return string(project) + "\x00" + string(name)
}

func (c *core) quotaDefault(name cloudsim.QuotaName) int64 {
	if n, ok := c.cfg.Quotas[name]; ok {
		return n
	}
	return cloudsim.DefaultQuotas()[name]
}

func (c *core) quotaLimit(tx *store.Tx, project cloudsim.ProjectID, name cloudsim.QuotaName) (int64, error) {
	n, ok, err := quotaLimits.Get(tx, quotaKey(project, name))
	if err != nil || ok {
		return n, err
	}
	return c.quotaDefault(name), nil
}

// checkQuota returns Exhausted if the project would exceed a quota with the resources in wanted.
// Call checkQuota before the first write. The store runs the transaction functions of several
// calls as one batch. If one function fails after a write, the store runs the other functions of
// the batch again. A failure before the first write has no effect on the other functions (see
// store.Store.Update).
func (c *core) checkQuota(tx *store.Tx, project cloudsim.ProjectID, wanted ...store.Use) error {
	for _, w := range wanted {
		limit, err := c.quotaLimit(tx, project, w.Name)
		if err != nil {
			return err
		}
		if used := tx.Used(project, w.Name); used+w.N > limit {
			return overQuota(project, w.Name, used, w.N, limit)
		}
	}
	return nil
}

// checkQuotaEach checks a quota that limits each resource separately. An
// example is the number of listeners of one load balancer.
func (e *Engine) checkQuotaEach(tx *store.Tx, project cloudsim.ProjectID, name cloudsim.QuotaName, n int) error {
	limit, err := e.quotaLimit(tx, project, name)
	if err == nil && int64(n) > limit {
		return overQuota(project, name, 0, int64(n), limit)
	}
	return err
}

// CheckQuota returns Exhausted if usedCount+wantedCount exceeds a quota of the project. It is for
// quotas of resources that the store does not count, so the caller must count the used resources.
func (e *Engine) CheckQuota(project cloudsim.ProjectID, name cloudsim.QuotaName, usedCount, wantedCount int64) error {
	return e.store.View(func(tx *store.Tx) error {
		limit, err := e.quotaLimit(tx, project, name)
		if err == nil && usedCount+wantedCount > limit {
			return overQuota(project, name, usedCount, wantedCount, limit)
		}
		return err
	})
}

// OverQuota is the error of a request that exceeds a quota. The message contains
// the name, the use and the limit of the quota, and a command that raises the limit.
type OverQuota struct {
	Project             cloudsim.ProjectID
	Name                cloudsim.QuotaName
	Used, Wanted, Limit int64
}

func (o OverQuota) Error() string {
	help := "raise the quota"
	if o.Used > 0 {
		help = "delete unused resources, or raise the quota"
	}
	return fmt.Sprintf("the request exceeds the quota %s of project %s (%d used, %d wanted, limit %d): %s with PUT /v1/quotas/%s or 'allinone cloud quotas set %s=%d --project %s'",
		o.Name, o.Project, o.Used, o.Wanted, o.Limit, help, o.Name, o.Name, o.Used+o.Wanted, o.Project)
}

func overQuota(project cloudsim.ProjectID, name cloudsim.QuotaName, used, wanted, limit int64) error {
	return cloudsim.Errorf(cloudsim.Exhausted, "%w", OverQuota{project, name, used, wanted, limit})
}

func (e *Engine) quota(tx *store.Tx, project cloudsim.ProjectID, name cloudsim.QuotaName) (q cloudsim.Quota, err error) {
	q = cloudsim.Quota{Name: name, Project: project, Default: e.quotaDefault(name)}
	switch name {
	case cloudsim.QuotaListeners, cloudsim.QuotaRegistryGiB, cloudsim.QuotaRegistryUploads:
	case cloudsim.QuotaNetworkAddresses:
		used, err := e.networkAddresses(tx, project)
		if err != nil {
			return q, err
		}
		q.Used = &used
	default:
		used := tx.Used(project, name)
		q.Used = &used
	}
	q.Limit, err = e.quotaLimit(tx, project, name)
	return q, err
}

// ListQuotas returns the quotas of the call's project, or of the default
// project for a call without a project.
func (e *Engine) ListQuotas(ctx context.Context) (all cloudsim.Quotas, err error) {
	call, err := callOf(ctx)
	if err != nil {
		return all, err
	}
	err = e.store.View(func(tx *store.Tx) error {
		project, err := e.projectOf(tx, call)
		if err != nil {
			return err
		}
		all.Items = nil
		for _, name := range cloudsim.QuotaNames() {
			q, err := e.quota(tx, project, name)
			if err != nil {
				return err
			}
			all.Items = append(all.Items, q)
		}
		return nil
	})
	return all, err
}

// SetQuota changes a limit of the call's project, or of the default project for a call without a
// project. If req.Limit is nil, the default limit applies again. SetQuota returns NotFound for an
// unknown name. It does not delete existing resources, even if they exceed the new limit.
func (e *Engine) SetQuota(ctx context.Context, name cloudsim.QuotaName, req cloudsim.SetQuota) (q cloudsim.Quota, err error) {
	if err := req.Validate(); err != nil {
		return q, err
	}
	if !slices.Contains(cloudsim.QuotaNames(), name) {
		return q, cloudsim.Errorf(cloudsim.NotFound, "no quota %.80q; the quotas are %v", name, cloudsim.QuotaNames())
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		project, err := e.projectOf(tx, call)
		if err != nil {
			return err
		}
		key := quotaKey(project, name)
		if req.Limit == nil {
			err = quotaLimits.Delete(tx, key)
		} else {
			err = quotaLimits.Put(tx, key, *req.Limit)
		}
		if err != nil {
			return err
		}
		q, err = e.quota(tx, project, name)
		return err
	})
	return q, err
}

func forgetQuotas(tx *store.Tx, project cloudsim.ProjectID) error {
	for _, name := range cloudsim.QuotaNames() {
		if err := quotaLimits.Delete(tx, quotaKey(project, name)); err != nil {
			return err
		}
	}
	return nil
}
