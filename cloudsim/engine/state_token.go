package engine

import (
	"errors"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// owner is whose a token is, by name: ids are given again after a load, and by
// every cloud.
type owner struct {
	project, account string
	home             cloudsim.ProjectID // of the account
}

// ownerOf is whose t is here; NotFound if that is not there.
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

// ownToken is a token from before a load, and whose it was then.
type ownToken struct {
	cloudsim.Token
	of owner
}

// ownTokens are the tokens of somebody.
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

// keepTokens makes the secrets of own good for what they were good for, where
// those whose they are, are there too.
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

// keepToken puts t where a token of its name is, or as a new one. What is there
// gets all that says what a secret is good for: it may have been made for less.
func keepToken(tx *store.Tx, t cloudsim.Token) error {
	have, err := tokens.Named(tx, t.Project, t.Name)
	switch {
	case errors.Is(err, cloudsim.NotFound):
		id, err := tokens.NextID(tx)
		if err != nil {
			return err
		}
		have = t
		have.ID, have.CreatedAt = cloudsim.TokenID(id), time.Time{} // new here
	case err != nil:
		return err
	case have.Hash == t.Hash:
		return nil
	}
	have.Hash, have.Role, have.ServiceAccount, have.ExpiresAt = t.Hash, t.Role, t.ServiceAccount, t.ExpiresAt
	return errors.Join(tokens.Put(tx, &have), forgetLater(tx, have))
}

// keepEnds puts the ends of all tokens on the due list, which is empty.
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
