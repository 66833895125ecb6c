package engine

import (
	"context"
	"errors"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

var serviceAccounts = store.Table[cloudsim.ServiceAccount]{
	Kind: cloudsim.KindServiceAccount, Prefix: "sa",
	ID:   func(a *cloudsim.ServiceAccount) string { return string(a.ID) },
	Meta: func(a *cloudsim.ServiceAccount) *cloudsim.Meta { return &a.Meta },
	Uses: store.One[cloudsim.ServiceAccount](cloudsim.QuotaServiceAccounts),
}

func ofAccount(id cloudsim.ServiceAccountID) []string {
	if id == "" {
		return nil
	}
	return []string{string(id)}
}

// findAccount returns the service account with the id idOrName, or with the name idOrName in the
// call's project. If the caller has permission for the call's operation in all projects, idOrName
// may also be the id of an account in another project. If no account matches, findAccount returns
// Invalid.
func findAccount(tx *store.Tx, call Call, idOrName string) (cloudsim.ServiceAccount, error) {
	a, err := serviceAccounts.Get(tx, idOrName)
	if err == nil && !call.mayEverywhere(call.Operation, call.access) && !call.canSee(&a.Meta) {
		err = cloudsim.NotFound
	}
	if errors.Is(err, cloudsim.NotFound) && call.Project != "" {
		a, err = serviceAccounts.Named(tx, call.Project, idOrName)
	}
	if errors.Is(err, cloudsim.NotFound) {
		hint := "see GET /v1/service-accounts"
		if call.Project == "" {
			hint += "; in a call for all projects, use the id of the account, or choose a project with the header Cloud-Project"
		}
		return cloudsim.ServiceAccount{}, errUnknownReference("serviceAccount", idOrName, hint)
	}
	return a, err
}

// accountToCarry returns the id of the service account for a new instance, or for a new workload
// trust. If idOrName is "", it returns "". The caller must have all permissions of the account,
// because the instance or workload gets these permissions.
//
// If the account belongs to another project, the caller also needs the permission tokens.create in
// all projects. The reason is that the other project can later give the account more permissions.
// With tokens.create, the caller could also get these permissions through a token of the account.
func accountToCarry(tx *store.Tx, call Call, project cloudsim.ProjectID, idOrName string) (cloudsim.ServiceAccountID, error) {
	if idOrName == "" {
		return "", nil
	}
	call.Project = project
	a, err := findAccount(tx, call, idOrName)
	if err != nil {
		return "", err
	}
	if a.Project != project && !call.mayEverywhere("tokens.create", Manage) {
		return "", cloudsim.Errorf(cloudsim.Denied, "%s may not assign the service account %s of another project: the caller needs the permission tokens.create in all projects", call.caller(), a.ID)
	}
	return a.ID, mayBe(tx, call, a)
}

// mayBe returns Denied if the given service account has permissions that the
// caller does not have.
func mayBe(tx *store.Tx, call Call, a cloudsim.ServiceAccount) error {
	all, err := grantsOf(tx, cloudsim.Token{ServiceAccount: a.ID})
	for _, g := range all {
		err = errors.Join(err, call.mayGive(g))
	}
	return err
}

// hasAccount reports whether the service account of instance i has the id or
// name idOrName.
func hasAccount(tx *store.Tx, call Call, i cloudsim.Instance, idOrName string) bool {
	call.Project = i.Project
	a, err := findAccount(tx, call, idOrName)
	return err == nil && a.ID == i.ServiceAccount
}

// getOwn returns a resource that the call will delete. If the resource belongs to no project, the
// caller needs permission for the operation in all projects. Without this permission, getOwn
// returns Denied.
func getOwn[T any](tx *store.Tx, call Call, t store.Table[T], id string) (T, error) {
	v, err := get(tx, call, t, id)
	if err == nil && t.Meta(&v).Project == "" && !call.mayEverywhere(call.Operation, call.access) {
		return v, cloudsim.Errorf(cloudsim.Denied, "%s may not delete %s %s, which is for all projects: the caller needs the permission %s in all projects", call.caller(), t.Kind, id, call.Operation)
	}
	return v, err
}

// CreateServiceAccount creates a service account without permissions. It returns Invalid if the
// name has the form of an account id, because callers select an account by its name or its id.
func (ac *access) CreateServiceAccount(ctx context.Context, req cloudsim.CreateServiceAccount) (a cloudsim.ServiceAccount, err error) {
	if err := req.Validate(); err != nil {
		return a, err
	}
	err = ac.update(ctx, func(tx *store.Tx, call Call) error {
		a, err = idempotent(tx, call, serviceAccounts, req, func() (cloudsim.ServiceAccount, error) { return ac.accountByName(tx, call, req) })
		return err
	})
	return a, err
}

func (ac *access) accountByName(tx *store.Tx, call Call, req cloudsim.CreateServiceAccount) (a cloudsim.ServiceAccount, err error) {
	project, err := ac.projectOf(tx, call)
	if err != nil {
		return a, err
	}
	switch have, err := serviceAccounts.Named(tx, project, req.Name); {
	case err == nil && (have.Description != req.Description || !sameLabels(have.Labels, req.Labels)):
		return have, errNameTaken(cloudsim.KindServiceAccount, req.Name, string(have.ID), "another description or other labels")
	case err == nil:
		return have, nil
	case !errors.Is(err, cloudsim.NotFound):
		return a, err
	case isIDForm(serviceAccounts, req.Name):
		return a, errFormOfID(serviceAccounts.Kind, req.Name)
	}
	if err := ac.checkQuota(tx, project, store.Use{Name: cloudsim.QuotaServiceAccounts, N: 1}); err != nil {
		return a, err
	}
	id, err := serviceAccounts.NextID(tx)
	if err != nil {
		return a, err
	}
	a = cloudsim.ServiceAccount{
		ID:          cloudsim.ServiceAccountID(id),
		Meta:        cloudsim.Meta{Name: req.Name, Project: project, Labels: req.Labels},
		Description: req.Description,
	}
	return a, serviceAccounts.Put(tx, &a)
}

// GetServiceAccount returns a service account.
func (ac *access) GetServiceAccount(ctx context.Context, id cloudsim.ServiceAccountID) (cloudsim.ServiceAccount, error) {
	return read(ctx, ac.core, serviceAccounts, string(id))
}

// ListServiceAccounts returns one page of service accounts.
func (ac *access) ListServiceAccounts(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.ServiceAccount], error) {
	return listPage(ctx, ac.core, serviceAccounts, o, nil)
}

// DeleteServiceAccount deletes a service account with its tokens, access keys, role bindings and
// workload trusts. It returns Conflict if an instance uses the account.
func (ac *access) DeleteServiceAccount(ctx context.Context, id cloudsim.ServiceAccountID) error {
	return ac.update(ctx, func(tx *store.Tx, call Call) error {
		a, err := get(tx, call, serviceAccounts, string(id))
		if err != nil {
			return err
		}
		return removeAccount(tx, a)
	})
}

func removeAccount(tx *store.Tx, a cloudsim.ServiceAccount) error {
	carriers, err := instances.Lookup(tx, byAccount, string(a.ID))
	if err != nil {
		return err
	}
	if len(carriers) > 0 {
		return cloudsim.Errorf(cloudsim.Conflict, "service account %q is used by instance %s: delete the instance first", a.Name, carriers[0].ID)
	}
	its, err := tokens.Lookup(tx, byAccount, string(a.ID))
	if err != nil {
		return err
	}
	bound, err := roleBindings.Lookup(tx, byAccount, string(a.ID))
	if err != nil {
		return err
	}
	trusts, err := workloadTrusts.Lookup(tx, byAccount, string(a.ID))
	if err != nil {
		return err
	}
	keys, err := accessKeys.Lookup(tx, byAccount, string(a.ID))
	if err != nil {
		return err
	}
	if err := errors.Join(deleteAll(tx, tokens, its), deleteAll(tx, roleBindings, bound), deleteAll(tx, workloadTrusts, trusts), deleteAll(tx, accessKeys, keys)); err != nil {
		return err
	}
	return serviceAccounts.Delete(tx, &a)
}

func deleteAll[T any](tx *store.Tx, t store.Table[T], all []T) error {
	for i := range all {
		if err := t.Delete(tx, &all[i]); err != nil {
			return err
		}
	}
	return nil
}

// removeCallers deletes a project's service accounts, access keys, role bindings, workload trusts
// and tokens. It returns Conflict if an instance of another project uses an account of this
// project.
func (ac *access) removeCallers(tx *store.Tx, id cloudsim.ProjectID) error {
	accounts, err := resourcesOf(tx, serviceAccounts, id)
	if err != nil {
		return err
	}
	for _, a := range accounts {
		if err := removeAccount(tx, a); err != nil {
			return err
		}
	}
	bound, err1 := resourcesOf(tx, roleBindings, id)
	its, err2 := resourcesOf(tx, tokens, id)
	trusts, err3 := resourcesOf(tx, workloadTrusts, id)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	return errors.Join(deleteAll(tx, roleBindings, bound), deleteAll(tx, tokens, its), deleteAll(tx, workloadTrusts, trusts))
}

func resourcesOf[T any](tx *store.Tx, t store.Table[T], id cloudsim.ProjectID) (all []T, err error) {
	for v, err := range t.Scan(tx, id, "") {
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}
