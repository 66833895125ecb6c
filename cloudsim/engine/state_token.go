package engine

import (
	"errors"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// owner identifies the project and the service account of a token by their names. Ids are not
// enough, because an id in the saved state can belong to a different object in the running cloud.
type owner struct {
	project, account string
	accountProject   cloudsim.ProjectID // id of the account's project
}

// ownerOf returns the owner of token t. It returns NotFound if the project or the service account
// of t does not exist in the records of tx.
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
		o.account, o.accountProject = a.Name, a.Project
	}
	return o, nil
}

// ownToken contains a token that the running cloud had before it loaded a saved state, and the
// owner of this token.
type ownToken struct {
	cloudsim.Token
	of owner
}

// ownTokens returns all tokens with their owners. It omits a token if ownerOf returns NotFound.
func ownTokens(tx *store.Tx) (found []ownToken, err error) {
	for t, err := range tokens.Scan(tx, "", "") {
		if err != nil {
			return nil, err
		}
		of, err := ownerOf(tx, t)
		switch {
		case err == nil:
			found = append(found, ownToken{t, of})
		case !errors.Is(err, cloudsim.NotFound):
			return nil, err
		}
	}
	return found, nil
}

// keepTokens stores the tokens of the running cloud again after a saved state
// has replaced the records. The slice cloudTokens contains these tokens.
// keepTokens omits a token if ownerOf now returns a different owner or NotFound.
func keepTokens(tx *store.Tx, cloudTokens []ownToken) error {
	for _, t := range cloudTokens {
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

// keepToken stores t in place of the token with the same name, or as a new token. The token with
// the same name comes from the saved state and may have more permissions than t. Therefore
// keepToken replaces the hash, role, account and expiry of that token with the values of t.
func keepToken(tx *store.Tx, t cloudsim.Token) error {
	have, err := tokens.Named(tx, t.Project, t.Name)
	switch {
	case errors.Is(err, cloudsim.NotFound):
		id, err := tokens.NextID(tx)
		if err != nil {
			return err
		}
		have = t
		have.ID, have.CreatedAt = cloudsim.TokenID(id), time.Time{} // have is a new token with a new id
	case err != nil:
		return err
	case have.Hash == t.Hash:
		return nil
	}
	have.Hash, have.Role, have.ServiceAccount, have.ExpiresAt = t.Hash, t.Role, t.ServiceAccount, t.ExpiresAt
	return errors.Join(tokens.Put(tx, &have), forgetLater(tx, have))
}

// keepEnds adds the deletion of each expiring token to the due list again, because ResetState has
// emptied the due list.
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
