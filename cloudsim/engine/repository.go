package engine

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

const byPath = "path"

// repositories is the table of repositories. The names of repositories are
// unique in the whole cloud.
var repositories = store.Table[cloudsim.Repository]{
	Kind: cloudsim.KindRepository, Prefix: "repo",
	ID:    func(r *cloudsim.Repository) string { return string(r.ID) },
	Meta:  func(r *cloudsim.Repository) *cloudsim.Meta { return &r.Meta },
	Index: map[string]func(*cloudsim.Repository) []string{byPath: func(r *cloudsim.Repository) []string { return []string{r.Name} }},
}

// findRepository returns the repository with the given name, from any project.
// It returns NotFound if the repository does not exist.
func findRepository(tx *store.Tx, name string) (cloudsim.Repository, error) {
	found, err := repositories.Lookup(tx, byPath, name)
	if err == nil && len(found) == 0 {
		err = cloudsim.Errorf(cloudsim.NotFound, "no repository %s", name)
	}
	if err != nil {
		return cloudsim.Repository{}, err
	}
	return found[0], nil
}

// CreateRepository creates a repository. If the project already has a repository with the same name
// and labels, CreateRepository returns the existing repository. It returns Exists if the labels
// differ, or if another project has a repository with this name.
func (im *imageManager) CreateRepository(ctx context.Context, req cloudsim.CreateRepository) (r cloudsim.Repository, err error) {
	if err := req.Validate(); err != nil {
		return r, err
	}
	err = im.update(ctx, func(tx *store.Tx, call Call) error {
		r, err = idempotent(tx, call, repositories, req, func() (cloudsim.Repository, error) { return im.repositoryByName(tx, call, req) })
		return err
	})
	return r, err
}

func (im *imageManager) repositoryByName(tx *store.Tx, call Call, req cloudsim.CreateRepository) (r cloudsim.Repository, err error) {
	project, err := im.projectOf(tx, call)
	if err != nil {
		return r, err
	}
	have, err := repositories.Lookup(tx, byPath, req.Name)
	switch {
	case err != nil:
		return r, err
	case len(have) > 0 && have[0].Project != project:
		return r, cloudsim.Errorf(cloudsim.Exists, "repository %q already exists in another project: choose another name", req.Name)
	case len(have) > 0 && !sameLabels(have[0].Labels, req.Labels):
		return r, errNameTaken(cloudsim.KindRepository, req.Name, string(have[0].ID), "other labels")
	case len(have) > 0:
		return have[0], nil
	}
	id, err := repositories.NextID(tx)
	if err != nil {
		return r, err
	}
	r = cloudsim.Repository{ID: cloudsim.RepositoryID(id), Meta: cloudsim.Meta{Name: req.Name, Project: project, Labels: req.Labels}}
	return r, repositories.Put(tx, &r)
}

// GetRepository returns a repository.
func (im *imageManager) GetRepository(ctx context.Context, id cloudsim.RepositoryID) (cloudsim.Repository, error) {
	return read(ctx, im.core, repositories, string(id))
}

// ListRepositories returns one page of repositories.
func (im *imageManager) ListRepositories(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Repository], error) {
	return listPage(ctx, im.core, repositories, o, nil)
}

// Repositories returns the repositories of all projects. The keys of the map are the names of the
// repositories. The registry, which stores the images, calls this method.
func (im *imageManager) Repositories() (map[string]cloudsim.Repository, error) {
	all := map[string]cloudsim.Repository{}
	err := im.store.View(func(tx *store.Tx) error {
		for r, err := range repositories.Scan(tx, "", "") {
			if err != nil {
				return err
			}
			all[r.Name] = r
		}
		return nil
	})
	return all, err
}

// DeleteRepository removes a repository. Clients can no longer pull its images. A
// new repository with the same name does not get these images.
func (im *imageManager) DeleteRepository(ctx context.Context, id cloudsim.RepositoryID) error {
	return im.update(ctx, func(tx *store.Tx, call Call) error {
		r, err := get(tx, call, repositories, string(id))
		if err != nil {
			return err
		}
		return repositories.Delete(tx, &r)
	})
}
