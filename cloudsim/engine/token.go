package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

const byHash = "hash"

var tokens = store.Table[cloudsim.Token]{
	Kind: cloudsim.KindToken, Prefix: "tok",
	ID:     func(t *cloudsim.Token) string { return string(t.ID) },
	Meta:   func(t *cloudsim.Token) *cloudsim.Meta { return &t.Meta },
	Public: publicToken,
	Index: map[string]func(*cloudsim.Token) []string{
		byHash:    func(t *cloudsim.Token) []string { return []string{t.Hash} },
		byAccount: func(t *cloudsim.Token) []string { return ofAccount(t.ServiceAccount) },
		byRole:    func(t *cloudsim.Token) []string { return ofRole(t.Role) },
	},
}

func publicToken(t cloudsim.Token) cloudsim.Token {
	t.Hash, t.Secret = "", ""
	return t
}

// CreateToken creates a token. The returned token contains its Secret, which no other method
// returns. The caller must have all permissions of the new token. CreateToken returns Exists if the
// project has a token with this name.
func (ac *access) CreateToken(ctx context.Context, req cloudsim.CreateToken) (t cloudsim.Token, err error) {
	if err := req.Validate(); err != nil {
		return t, err
	}
	secret := NewSecret()
	err = ac.update(ctx, func(tx *store.Tx, call Call) error {
		t = cloudsim.Token{Meta: cloudsim.Meta{Name: req.Name}, Role: req.Role}
		if err := ac.placeToken(tx, call, &t, req); err != nil {
			return err
		}
		if req.TTLSeconds > 0 {
			until := tx.Now.Add(time.Duration(req.TTLSeconds) * time.Second)
			t.ExpiresAt = &until
		}
		have, err := tokens.Named(tx, t.Project, req.Name)
		if err := checkSecretName(cloudsim.KindToken, req.Name, string(have.ID), err); err != nil {
			return err
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
	if t.Name == "" {
		t.Name = id
	}
	return errors.Join(tokens.Put(tx, t), forgetLater(tx, *t))
}

// forgetLater adds the deletion of token t to the due list, unless t never expires. The cloud
// deletes the token a day after its expiry. During that day, a call with the token gets an error
// that names the time of the expiry.
func forgetLater(tx *store.Tx, t cloudsim.Token) error {
	if t.ExpiresAt == nil {
		return nil
	}
	return tx.Later(t.ExpiresAt.Add(retention), store.Work{Kind: cloudsim.KindToken, ID: string(t.ID), Verb: cloudsim.Delete})
}

// placeToken sets the project of t. If the request names a service account,
// placeToken also sets the service account of t. It returns Denied if t would
// have permissions that the caller does not have.
func (ac *access) placeToken(tx *store.Tx, call Call, t *cloudsim.Token, req cloudsim.CreateToken) error {
	if req.ServiceAccount != "" {
		in := call
		if projectID, err := ac.projectOf(tx, call); err == nil {
			in.Project = projectID
		}
		a, err := findAccount(tx, in, req.ServiceAccount)
		t.ServiceAccount, t.Project = a.ID, a.Project
		if err != nil {
			return err
		}
		return mayBe(tx, call, a) // the caller can use the new token, so the caller must have all permissions of account a
	}
	role, err := findRole(tx, req.Role)
	if err != nil {
		return err
	}
	if req.Role != cloudsim.RoleAdmin {
		if t.Project = req.Project; t.Project == "" {
			if t.Project, err = ac.projectOf(tx, call); err != nil {
				return err
			}
		}
		if _, err := get(tx, call, projects, string(t.Project)); err != nil {
			return err
		}
	}
	return call.mayGive(cloudsim.Grant{Role: req.Role, Permissions: role.Permissions, Project: t.Project})
}

// forgetToken deletes a token one day after the token has expired. The due time of w can be wrong,
// because LoadState can replace the expiry of a token from the saved state (see keepToken). So
// forgetToken checks the present expiry. If the token never expires, or if the day after its expiry
// is not over, forgetToken does nothing.
func forgetToken(tx *store.Tx, w store.Work) error {
	t, err := tokens.Get(tx, w.ID)
	switch {
	case errors.Is(err, cloudsim.NotFound):
		return nil
	case err != nil:
		return err
	case t.ExpiresAt == nil || tx.Now.Before(t.ExpiresAt.Add(retention)):
		return nil
	}
	return tokens.Delete(tx, &t)
}

// AdminToken is the name of the token that EnsureAdmin stores.
const AdminToken = "admin"

// EnsureAdmin creates the admin token, or replaces its secret. The owner of the machine uses this
// token as administrator. EnsureAdmin needs no authorization.
func (ac *access) EnsureAdmin(secret string) error {
	return ac.store.Update("", func(tx *store.Tx) error {
		t, err := tokens.Named(tx, "", AdminToken)
		switch {
		case errors.Is(err, cloudsim.NotFound):
			return putToken(tx, &cloudsim.Token{Meta: cloudsim.Meta{Name: AdminToken}, Role: cloudsim.RoleAdmin}, secret)
		case err != nil:
			return err
		case t.Hash == hashSecret(secret):
			return nil
		}
		t.Hash = hashSecret(secret)
		return tokens.Put(tx, &t)
	})
}

// NewSecret generates the secret of a token from at least 256 random bits.
func NewSecret() string { return "cst_" + rand.Text() + rand.Text() }

// GetToken returns a token without its secret. A token without a project is
// visible only to calls with that token, and to callers that may read tokens in
// all projects.
func (ac *access) GetToken(ctx context.Context, id cloudsim.TokenID) (cloudsim.Token, error) {
	call, err := callOf(ctx)
	if err != nil {
		return cloudsim.Token{}, err
	}
	t, err := read(ctx, ac.core, tokens, string(id))
	if err == nil && t.Project == "" && t.ID != call.Token && !call.mayEverywhere(call.Operation, call.access) {
		return cloudsim.Token{}, cloudsim.Errorf(cloudsim.NotFound, "no %s %s", tokens.Kind, id)
	}
	return publicToken(t), err
}

// ListTokens returns one page of tokens, without their secrets.
func (ac *access) ListTokens(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.Token], error) {
	return listPage(ctx, ac.core, tokens, o, nil)
}

// DeleteToken deletes a token. The token becomes invalid at once. Open watches of callers with this
// token end.
func (ac *access) DeleteToken(ctx context.Context, id cloudsim.TokenID) error {
	return ac.update(ctx, func(tx *store.Tx, call Call) error {
		t, err := getOwn(tx, call, tokens, string(id))
		if err != nil {
			return err
		}
		if t.ID == call.Token && t.Name == AdminToken {
			return cloudsim.Errorf(cloudsim.Conflict, "token %s (%s) cannot delete itself, because the cloud could have no administrator until its next start; to replace the token, change the file of --admin-token-file and start the cloud again", t.ID, t.Name)
		}
		return tokens.Delete(tx, &t)
	})
}
