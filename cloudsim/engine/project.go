package engine

import (
	"context"
	"crypto/rand"
	"time"

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

const byHash = "hash"

var tokens = store.Table[cloudsim.Token]{
	Kind: cloudsim.KindToken, Prefix: "tok",
	ID:     func(t *cloudsim.Token) string { return string(t.ID) },
	Meta:   func(t *cloudsim.Token) *cloudsim.Meta { return &t.Meta },
	Public: publicToken,
	Index:  map[string]func(*cloudsim.Token) []string{byHash: func(t *cloudsim.Token) []string { return []string{t.Hash} }},
}

func publicToken(t cloudsim.Token) cloudsim.Token {
	t.Hash, t.Secret = "", ""
	return t
}

// A project belongs to itself, so that its own tokens may see it.
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
	return p, projects.Put(tx, &p)
}

// findProject resolves an id or a name.
func findProject(tx *store.Tx, idOrName string) (cloudsim.Project, error) {
	if p, err := projects.Get(tx, idOrName); err == nil {
		return p, nil
	}
	for p, err := range projects.Scan(tx, "", "") {
		if err != nil || p.Name == idOrName {
			return p, err
		}
	}
	return cloudsim.Project{}, cloudsim.Errorf(cloudsim.NotFound, "no project %s", idOrName)
}

// CreateProject makes a project.
func (e *Engine) CreateProject(ctx context.Context, req cloudsim.CreateProject) (p cloudsim.Project, err error) {
	if err := req.Validate(); err != nil {
		return p, err
	}
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		p, err = once(tx, call, projects, req, func() (cloudsim.Project, error) {
			have, err := findProject(tx, req.Name)
			switch {
			case err != nil:
				return e.makeProject(tx, req)
			case !sameLabels(have.Labels, req.Labels):
				return have, taken(cloudsim.KindProject, req.Name, string(have.ID), "other labels")
			}
			return have, nil
		})
		return err
	})
	return p, err
}

// GetProject returns a project.
func (e *Engine) GetProject(ctx context.Context, id cloudsim.ProjectID) (cloudsim.Project, error) {
	return read(ctx, e, projects, string(id))
}

// ListProjects returns one page of projects.
func (e *Engine) ListProjects(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Project], error) {
	return page(ctx, e, projects, o, nil)
}

// DeleteProject removes an empty project and its tokens.
func (e *Engine) DeleteProject(ctx context.Context, id cloudsim.ProjectID) error {
	return e.update(ctx, func(tx *store.Tx, call Call) error {
		p, err := get(tx, call, projects, string(id))
		if err != nil {
			return err
		}
		if p.Name == DefaultProject {
			return cloudsim.Errorf(cloudsim.Conflict, "the project %q cannot be deleted", p.Name)
		}
		for _, t := range []struct {
			owned bool
			kind  cloudsim.ResourceKind
		}{
			{instances.Owned(tx, id), cloudsim.KindInstance},
			{loadBalancers.Owned(tx, id), cloudsim.KindLoadBalancer},
			{addresses.Owned(tx, id), cloudsim.KindAddress},
			{disks.Owned(tx, id), cloudsim.KindDisk},
		} {
			if t.owned {
				return cloudsim.Errorf(cloudsim.Conflict, "project %q still owns a resource of kind %s: delete it first", p.Name, t.kind)
			}
		}
		var own []cloudsim.Token
		for t, err := range tokens.Scan(tx, id, "") {
			if err != nil {
				return err
			}
			own = append(own, t)
		}
		for i := range own {
			if err := tokens.Delete(tx, &own[i]); err != nil {
				return err
			}
		}
		return projects.Delete(tx, &p)
	})
}

// CreateToken makes a token. Its Secret is in the result and nowhere else.
func (e *Engine) CreateToken(ctx context.Context, req cloudsim.CreateToken) (t cloudsim.Token, err error) {
	if err := req.Validate(); err != nil {
		return t, err
	}
	secret := NewSecret()
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		t = cloudsim.Token{Meta: cloudsim.Meta{Name: req.Name}, Role: req.Role}
		if req.Role != cloudsim.RoleAdmin {
			if t.Project = req.Project; t.Project == "" {
				if t.Project, err = e.home(tx, call); err != nil {
					return err
				}
			}
			if _, err := get(tx, call, projects, string(t.Project)); err != nil {
				return err
			}
		}
		if req.TTLSeconds > 0 {
			until := tx.Now.Add(time.Duration(req.TTLSeconds) * time.Second)
			t.ExpiresAt = &until
		}
		if have, err := tokens.Named(tx, t.Project, req.Name); err == nil {
			return taken(cloudsim.KindToken, req.Name, string(have.ID), "a secret that is not shown again: delete it or choose another name")
		}
		return putToken(tx, &t, secret)
	})
	if err != nil {
		return cloudsim.Token{}, err
	}
	t = publicToken(t)
	t.Secret = secret
	return t, nil
}

func putToken(tx *store.Tx, t *cloudsim.Token, secret string) error {
	id, err := tokens.NextID(tx)
	if err != nil {
		return err
	}
	t.ID, t.Hash = cloudsim.TokenID(id), hashSecret(secret)
	return tokens.Put(tx, t)
}

// AdminToken is the name of the token that EnsureAdmin keeps.
const AdminToken = "admin"

// EnsureAdmin makes secret the secret of the admin token: the way in for who
// owns the machine. It needs no call.
func (e *Engine) EnsureAdmin(secret string) error {
	return e.store.Update("", func(tx *store.Tx) error {
		t, err := tokens.Named(tx, "", AdminToken)
		switch {
		case err != nil:
			return putToken(tx, &cloudsim.Token{Meta: cloudsim.Meta{Name: AdminToken}, Role: cloudsim.RoleAdmin}, secret)
		case t.Hash == hashSecret(secret):
			return nil
		}
		t.Hash = hashSecret(secret)
		return tokens.Put(tx, &t)
	})
}

// NewSecret makes the secret of a token: 256 random bits.
func NewSecret() string { return "cst_" + rand.Text() + rand.Text() }

// GetToken returns a token without its secret.
func (e *Engine) GetToken(ctx context.Context, id cloudsim.TokenID) (cloudsim.Token, error) {
	t, err := read(ctx, e, tokens, string(id))
	return publicToken(t), err
}

// ListTokens returns one page of tokens, without their secrets.
func (e *Engine) ListTokens(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Token], error) {
	return page(ctx, e, tokens, o, nil)
}

// DeleteToken revokes a token at once.
func (e *Engine) DeleteToken(ctx context.Context, id cloudsim.TokenID) error {
	return e.update(ctx, func(tx *store.Tx, call Call) error {
		t, err := get(tx, call, tokens, string(id))
		if err != nil {
			return err
		}
		return tokens.Delete(tx, &t)
	})
}
