package engine

import (
	"context"
	"crypto/rand"

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

// CreateInstanceToken makes a token of the service account that an instance
// carries, for its metadata service to hand to it.
func (e *Engine) CreateInstanceToken(ctx context.Context, id cloudsim.InstanceID) (t cloudsim.Token, err error) {
	secret := NewSecret()
	err = e.update(ctx, func(tx *store.Tx, call Call) error {
		i, err := get(tx, call, instances, string(id))
		switch {
		case err != nil:
			return err
		case i.ServiceAccount == "":
			return cloudsim.Errorf(cloudsim.NotFound, "instance %s carries no service account: make it with one", id)
		case i.State == cloudsim.InstanceTerminating:
			return cloudsim.Errorf(cloudsim.Conflict, "instance %s is terminating: it is nobody any more", id)
		}
		a, err := serviceAccounts.Get(tx, string(i.ServiceAccount))
		if err != nil {
			return err
		}
		until := tx.Now.Add(cloudsim.InstanceTokenLife)
		t = cloudsim.Token{Meta: cloudsim.Meta{Project: a.Project}, ServiceAccount: a.ID, ExpiresAt: &until}
		return putToken(tx, &t, secret)
	})
	t = publicToken(t)
	t.Secret = secret
	return t, err
}
