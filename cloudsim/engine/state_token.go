package engine

import (
	"errors"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// owner identifies the project and the account of a token by name. The type
// owner does not contain ids, because an id in the saved state can belong to a
// different object in the running cloud.
type owner struct {
	project, account string
	home             cloudsim.ProjectID // project of the account
}

// ownerOf returns the owner of t in tx. It returns NotFound if the project or
// the account of t does not exist in tx.
func ownerOf(tx *store.Tx, t cloudsim.Token) (o owner, err error) {
	if t.Project != "" {
		p, err := projects.Get(tx, string(t.Project))
		if err != nil {
			return o, err
		}
		o.project = p.Name
	}
	if t.ServiceAccount != "" {
		a, err := serviceAccounts.Get(tx, string(t.ServiceAccount))
		if err != nil {
			return o, err
		}
		o.account, o.home = a.Name, a.Project
	}
	return o, nil
}

// ownToken is a token that the running cloud had before it loaded a saved state, and the token's
// owner.
type ownToken struct {
	cloudsim.Token
	of owner
}

// ownTokens returns all tokens with an existing owner.
func ownTokens(tx *store.Tx) (all []ownToken, err error) {
	for t, err := range tokens.Scan(tx, "", "") {
		if err != nil {
			return nil, err
		}
		of, err := ownerOf(tx, t)
		switch {
		case err == nil:
			all = append(all, ownToken{t, of})
		case !errors.Is(err, cloudsim.NotFound):
			return nil, err
		}
	}
	return all, nil
}

// keepTokens stores the tokens in own again after a saved state has replaced
// the records. It omits a token if its project or account no longer exists with
// the same name.
func keepTokens(tx *store.Tx, own []ownToken) error {
	for _, t := range own {
		of, err := ownerOf(tx, t.Token)
		switch {
		case errors.Is(err, cloudsim.NotFound) || err == nil && of != t.of:
			continue
		case err != nil:
			return err
		}
		if err := keepToken(tx, t.Token); err != nil {
			return err
		}
	}
	return nil
}

// keepToken stores t in place of the token with the same name, or as a new
// token. In the token with the same name, keepToken replaces the hash, the
// role, the account and the expiry. The reason is that the token in the saved
// state may have more permissions than t.
func keepToken(tx *store.Tx, t cloudsim.Token) error {
	have, err := tokens.Named(tx, t.Project, t.Name)
	switch {
	case errors.Is(err, cloudsim.NotFound):
		id, err := tokens.NextID(tx)
		if err != nil {
			return err
		}
		have = t
		have.ID, have.CreatedAt = cloudsim.TokenID(id), time.Time{} // a new token
	case err != nil:
		return err
	case have.Hash == t.Hash:
		return nil
	}
	have.Hash, have.Role, have.ServiceAccount, have.ExpiresAt = t.Hash, t.Role, t.ServiceAccount, t.ExpiresAt
	return errors.Join(tokens.Put(tx, &have), forgetLater(tx, have))
}

// keepEnds adds the deletion of each expiring token to the due list, because a
// reset empties the due list.
func keepEnds(tx *store.Tx) error {
	for t, err := range tokens.Scan(tx, "", "") {
		if err == nil {
			err = forgetLater(tx, t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
