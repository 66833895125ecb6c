package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// CreateIdentityDocument returns an identity document: a signed token that proves the identity of
// an instance to one audience. It returns Conflict if the instance is terminating.
func (ac *access) CreateIdentityDocument(ctx context.Context, id cloudsim.InstanceID, req cloudsim.CreateIdentityDocument) (doc cloudsim.IdentityDocument, err error) {
	if err := req.Validate(); err != nil {
		return doc, err
	}
	call, err := callOf(ctx)
	if err != nil {
		return doc, err
	}
	err = ac.store.View(func(tx *store.Tx) error {
		i, err := get(tx, call, instances, string(id))
		if err != nil {
			return err
		}
		if i.State == cloudsim.InstanceTerminating {
			return cloudsim.Errorf(cloudsim.Conflict, "cannot create an identity document for instance %s: the instance is terminating", id)
		}
		doc.ExpiresAt = tx.Now.Add(cloudsim.IdentityLife)
		doc.Token, err = sign(tx, cloudsim.KeyIdentity, cloudsim.IdentityClaims{
			Issuer: ac.cfg.Issuer, Subject: "instance:" + string(i.ID), Audience: req.Audience,
			Expires: doc.ExpiresAt.Unix(), From: tx.Now.Unix(), IssuedAt: tx.Now.Unix(), TokenID: rand.Text(),
			Instance: cloudsim.IdentityInstance{
				ID: i.ID, Name: i.Name, ProviderID: i.ProviderID, Project: i.Project, Region: i.Region, Zone: i.Zone, Type: i.Type,
			},
		})
		return err
	})
	return doc, err
}

// instanceTokens contains the secret of the last token of each instance. The secrets are only in
// memory, so after a restart an instance gets a new token.
type instanceTokens struct {
	mu      sync.Mutex
	secrets map[cloudsim.InstanceID]string
}

func (h *instanceTokens) last(id cloudsim.InstanceID) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.secrets[id]
}

// keep stores the secret of an instance's last token. If secret is "", keep deletes the stored
// secret.
func (h *instanceTokens) keep(id cloudsim.InstanceID, secret string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if secret == "" {
		delete(h.secrets, id)
		return
	}
	if h.secrets == nil {
		h.secrets = map[cloudsim.InstanceID]string{}
	}
	h.secrets[id] = secret
}

// CreateInstanceToken returns a token of the instance's service account. It returns NotFound if the
// instance has no service account, and Conflict if the instance is terminating. The metadata
// service gives this token to the instance. While the last token has at least half of its lifetime
// left, CreateInstanceToken returns this token again. If each call created a token, a program that
// often requests a token would fill the store. The store keeps each token until a day after its
// expiry.
func (ac *access) CreateInstanceToken(ctx context.Context, id cloudsim.InstanceID) (t cloudsim.Token, err error) {
	call, err := callOf(ctx)
	if err != nil {
		return t, err
	}
	secret := ac.carried.last(id)
	if err := ac.store.View(func(tx *store.Tx) error {
		a, err := carriedBy(tx, call, id)
		if errors.Is(err, cloudsim.NotFound) {
			ac.carried.keep(id, "")
		}
		if err != nil || secret == "" {
			return err
		}
		found, err := tokens.Lookup(tx, byHash, hashSecret(secret))
		if len(found) > 0 && found[0].ServiceAccount == a.ID && found[0].ExpiresAt != nil && found[0].ExpiresAt.Sub(tx.Now) >= cloudsim.InstanceTokenLife/2 {
			t = publicToken(found[0])
		}
		return err
	}); err != nil || t.ID != "" {
		t.Secret = secret
		return t, err
	}
	secret = NewSecret()
	err = ac.update(ctx, func(tx *store.Tx, call Call) error {
		a, err := carriedBy(tx, call, id)
		if err != nil {
			return err
		}
		until := tx.Now.Add(cloudsim.InstanceTokenLife)
		t = cloudsim.Token{Meta: cloudsim.Meta{Project: a.Project}, ServiceAccount: a.ID, ExpiresAt: &until}
		return putToken(tx, &t, secret)
	})
	if err == nil {
		ac.carried.keep(id, secret)
	}
	t = publicToken(t)
	t.Secret = secret
	return t, err
}

// carriedBy returns the service account of an instance. It returns NotFound if
// the instance has no service account, and Conflict if the instance is
// terminating.
func carriedBy(tx *store.Tx, call Call, id cloudsim.InstanceID) (a cloudsim.ServiceAccount, err error) {
	i, err := get(tx, call, instances, string(id))
	switch {
	case err != nil:
		return a, err
	case i.ServiceAccount == "":
		return a, cloudsim.Errorf(cloudsim.NotFound, "instance %s has no service account: create the instance with a service account", id)
	case i.State == cloudsim.InstanceTerminating:
		return a, cloudsim.Errorf(cloudsim.Conflict, "cannot create a token for instance %s: the instance is terminating", id)
	}
	return serviceAccounts.Get(tx, string(i.ServiceAccount))
}
