package engine

import (
	"context"
	"errors"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// DefaultProject is the name of the project that always exists.
const DefaultProject = "default"

var projects = store.Table[cloudsim.Project]{
	Kind: cloudsim.KindProject, Prefix: "proj",
	ID:   func(p *cloudsim.Project) string { return string(p.ID) },
	Meta: func(p *cloudsim.Project) *cloudsim.Meta { return &p.Meta },
}

func (e *Engine) ensureProject(tx *store.Tx, name string) (cloudsim.Project, error) {
	for p, err := range projects.Scan(tx, "", "") {
		if err != nil || p.Name == name {
			return p, err
		}
	}
	return e.makeProject(tx, cloudsim.CreateProject{Name: name})
}

func (e *Engine) makeProject(tx *store.Tx, req cloudsim.CreateProject) (p cloudsim.Project, err error) {
	id, err := projects.NextID(tx)
	if err != nil {
		return p, err
	}
	p.ID = cloudsim.ProjectID(id)
	p.Meta = cloudsim.Meta{Name: req.Name, Project: p.ID, Labels: req.Labels}
	if err := projects.Put(tx, &p); err != nil {
		return p, err
	}
	return p, e.makeDefaultNetwork(tx, p.ID)
}

// findProject returns the project with the given id or name, or NotFound.
func findProject(tx *store.Tx, idOrName string) (cloudsim.Project, error) {
	if p, err := projects.Get(tx, idOrName); !errors.Is(err, cloudsim.NotFound) {
		return p, err
	}
	for p, err := range projects.Scan(tx, "", "") {
		if err != nil || p.Name == idOrName {
			return p, err
		}
	}
	return cloudsim.Project{}, cloudsim.Errorf(cloudsim.NotFound, "no project %s", idOrName)
}

// CreateProject creates a project. If a project with the same name exists, CreateProject returns
// this project, or Exists if the labels differ. Callers select a project by its name or its id.
// CreateProject therefore returns Conflict if the name is the id of another project. It returns
// Invalid if the name has the form of a project id, because a later project can get this id.
func (e *Engine) CreateProject(ctx context.Context, req cloudsim.CreateProject) (p cloudsim.Project, err error) {
	if err := req.Validate(); err != nil {
		return p, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		p, err = idempotent(tx, call, projects, req, func() (cloudsim.Project, error) {
			have, err := findProject(tx, req.Name)
			switch {
			case errors.Is(err, cloudsim.NotFound) && isIDForm(projects, req.Name):
				return have, errFormOfID(projects.Kind, req.Name)
			case errors.Is(err, cloudsim.NotFound):
				return e.makeProject(tx, req)
			case err != nil:
				return have, err
			case have.Name != req.Name:
				return have, cloudsim.Errorf(cloudsim.Conflict, "name %q is the id of project %s: choose another name", req.Name, have.Name)
			case !sameLabels(have.Labels, req.Labels):
				return have, errNameTaken(cloudsim.KindProject, req.Name, string(have.ID), "other labels")
			}
			return have, nil
		})
		return err
	})
	return p, err
}

// GetProject returns a project.
func (e *Engine) GetProject(ctx context.Context, id cloudsim.ProjectID) (cloudsim.Project, error) {
	return read(ctx, e.core, projects, string(id))
}

// ListProjects returns one page of projects.
func (e *Engine) ListProjects(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Project], error) {
	return listPage(ctx, e.core, projects, o, nil)
}

// DeleteProject removes a project. It also removes the project's default network, service accounts,
// access keys, role bindings, workload trusts, tokens and quota limits. DeleteProject returns
// Conflict in these cases: the project is the default project, the project owns other resources, or
// an instance of another project uses a service account of the project.
func (e *Engine) DeleteProject(ctx context.Context, id cloudsim.ProjectID) error {
	return e.update(ctx, func(tx *store.Tx, call Call) error {
		p, err := get(tx, call, projects, string(id))
		if err != nil {
			return err
		}
		if p.Name == DefaultProject {
			return cloudsim.Errorf(cloudsim.Conflict, "cannot delete project %q: it is the default project", p.Name)
		}
		for _, t := range []struct {
			owned bool
			kind  cloudsim.ResourceKind
		}{
			{instances.Owned(tx, id), cloudsim.KindInstance},
			{loadBalancers.Owned(tx, id), cloudsim.KindLoadBalancer},
			{addresses.Owned(tx, id), cloudsim.KindAddress},
			{disks.Owned(tx, id), cloudsim.KindDisk},
			{repositories.Owned(tx, id), cloudsim.KindRepository},
			{snapshotGroups.Owned(tx, id), cloudsim.KindSnapshotGroup},
			{snapshots.Owned(tx, id), cloudsim.KindSnapshot},
			{records.Owned(tx, id), cloudsim.KindRecord},
		} {
			if t.owned {
				owned := splitCamelCase(nounOfKind(t.kind))
				return cloudsim.Errorf(cloudsim.Conflict, "project %q still owns %s: list them with GET /v1/%s in this project, and delete all of them first", p.Name, owned, strings.ReplaceAll(owned, " ", "-"))
			}
		}
		if err := e.dropDefaultNetwork(tx, id); err != nil {
			return err
		}
		if err := errors.Join(e.removeCallers(tx, id), forgetQuotas(tx, id)); err != nil {
			return err
		}
		return projects.Delete(tx, &p)
	})
}
