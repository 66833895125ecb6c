package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// CreateIdentityDocument makes an identity document of an instance, for one audience.
// An instance that is being terminated gets none.
func (e *Engine) CreateIdentityDocument(ctx context.Context, id cloudsim.InstanceID, req cloudsim.CreateIdentityDocument) (doc cloudsim.IdentityDocument, err error) {
	if err := req.Validate(); err != nil {
		return doc, err
	}
	call, err := callOf(ctx)
	if err != nil {
		return doc, err
	}
	err = e.store.View(func(tx *store.Tx) error {
		i, err := get(tx, call, instances, string(id))
		if err != nil {
			return err
		}
		if i.State == cloudsim.InstanceTerminating {
			return cloudsim.Errorf(cloudsim.Conflict, "instance %s is terminating: it is nobody any more", id)
		}
		doc.ExpiresAt = tx.Now.Add(cloudsim.IdentityLife)
		doc.Token, err = sign(tx, cloudsim.KeyIdentity, cloudsim.IdentityClaims{
			Issuer: e.cfg.Issuer, Subject: "instance:" + string(i.ID), Audience: req.Audience,
			Expires: doc.ExpiresAt.Unix(), From: tx.Now.Unix(), IssuedAt: tx.Now.Unix(), TokenID: rand.Text(),
			Instance: cloudsim.IdentityInstance{
				ID: i.ID, Name: i.Name, ProviderID: i.ProviderID, Project: i.Project, Region: i.Region, Zone: i.Zone, Type: i.Type,
			},
		})
		return err
	})
	return doc, err
}

// instanceTokens are the secrets of the tokens that instances were given last.
// They are in memory alone: after a restart each is given another.
type instanceTokens struct {
	mu      sync.Mutex
	secrets map[cloudsim.InstanceID]string
}

func (h *instanceTokens) last(id cloudsim.InstanceID) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.secrets[id]
}

// keep remembers a secret; "" forgets what there is.
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

// CreateInstanceToken makes a token of the service account that an instance
// carries, for its metadata service to hand to it. It is the one that it made
// last while that is good for half of its life or longer: whatever runs on the
// instance may ask as often as it likes, and a token is a record for a day.
func (e *Engine) CreateInstanceToken(ctx context.Context, id cloudsim.InstanceID) (t cloudsim.Token, err error) {
	call, err := callOf(ctx)
	if err != nil {
		return t, err
	}
	secret := e.carried.last(id)
	if err := e.store.View(func(tx *store.Tx) error {
		a, err := carriedBy(tx, call, id)
		if errors.Is(err, cloudsim.NotFound) {
			e.carried.keep(id, "")
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
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		a, err := carriedBy(tx, call, id)
		if err != nil {
			return err
		}
		until := tx.Now.Add(cloudsim.InstanceTokenLife)
		t = cloudsim.Token{Meta: cloudsim.Meta{Project: a.Project}, ServiceAccount: a.ID, ExpiresAt: &until}
		return putToken(tx, &t, secret)
	})
	if err == nil {
		e.carried.keep(id, secret)
	}
	t = publicToken(t)
	t.Secret = secret
	return t, err
}

// carriedBy is the service account that an instance carries, which is somebody.
func carriedBy(tx *store.Tx, call Call, id cloudsim.InstanceID) (a cloudsim.ServiceAccount, err error) {
	i, err := get(tx, call, instances, string(id))
	switch {
	case err != nil:
		return a, err
	case i.ServiceAccount == "":
		return a, cloudsim.Errorf(cloudsim.NotFound, "instance %s carries no service account: make it with one", id)
	case i.State == cloudsim.InstanceTerminating:
		return a, cloudsim.Errorf(cloudsim.Conflict, "instance %s is terminating: it is nobody any more", id)
	}
	return serviceAccounts.Get(tx, string(i.ServiceAccount))
}
