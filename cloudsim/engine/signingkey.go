package engine

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

const byKeyID = "kid"

var signingKeys = store.Table[cloudsim.SigningKey]{
	Kind: cloudsim.KindSigningKey, Prefix: "key",
	ID:     func(k *cloudsim.SigningKey) string { return string(k.ID) },
	Meta:   func(k *cloudsim.SigningKey) *cloudsim.Meta { return &k.Meta },
	Public: publicKey,
	Index:  map[string]func(*cloudsim.SigningKey) []string{byKeyID: func(k *cloudsim.SigningKey) []string { return []string{k.KeyID} }},
}

// publicKey returns the copy of k for the journal and for callers. The copy omits the private key,
// which is secret. The copy also omits the random KeyID, because the same calls must always write
// the same journal.
func publicKey(k cloudsim.SigningKey) cloudsim.SigningKey {
	k.Private, k.KeyID = nil, ""
	return k
}

// ensureKeys creates a signing key for each cloudsim.KeyUse that has no active key.
func ensureKeys(tx *store.Tx) error {
	for _, use := range cloudsim.KeyUses() {
		_, err := activeKey(tx, use)
		if errors.Is(err, cloudsim.NotFound) {
			_, err = newKey(tx, use)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// activeKey returns the active signing key for the given use. It reads all keys instead of an
// index, because a cloud has only a few keys.
func activeKey(tx *store.Tx, use cloudsim.KeyUse) (cloudsim.SigningKey, error) {
	for k, err := range signingKeys.Scan(tx, "", "") {
		if err != nil || k.Use == use && k.State == cloudsim.SigningKeyActive {
			return k, err
		}
	}
	return cloudsim.SigningKey{}, cloudsim.Errorf(cloudsim.NotFound, "no active %s of use %s", cloudsim.KindSigningKey, use)
}

func newKey(tx *store.Tx, use cloudsim.KeyUse) (k cloudsim.SigningKey, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return k, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return k, err
	}
	thumb, err := (&jose.JSONWebKey{Key: &private.PublicKey}).Thumbprint(crypto.SHA256)
	if err != nil {
		return k, err
	}
	id, err := signingKeys.NextID(tx)
	if err != nil {
		return k, err
	}
	k = cloudsim.SigningKey{
		ID: cloudsim.SigningKeyID(id), Meta: cloudsim.Meta{Name: id}, Use: use, State: cloudsim.SigningKeyActive,
		KeyID: base64.RawURLEncoding.EncodeToString(thumb), Private: der,
	}
	return k, signingKeys.Put(tx, &k)
}

func decodeKey(k cloudsim.SigningKey) (*ecdsa.PrivateKey, error) {
	key, err := x509.ParsePKCS8PrivateKey(k.Private)
	if err != nil {
		return nil, fmt.Errorf("signing key %s is damaged: %w", k.ID, err)
	}
	p, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("signing key %s is damaged: got a %T, want an ECDSA key", k.ID, key)
	}
	return p, nil
}

// sign returns a token with the claims, signed by the active key for a use.
func sign(tx *store.Tx, use cloudsim.KeyUse, claims any) (string, error) {
	k, err := activeKey(tx, use)
	if err != nil {
		return "", err
	}
	key, err := decodeKey(k)
	if err != nil {
		return "", err
	}
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: k.KeyID}},
		(&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", err
	}
	return jwt.Signed(signer).Claims(claims).Serialize()
}

// RotateSigningKey creates a new signing key for req.Use, and retires the active key of this use.
// Signatures of the retiring key stay valid for req.OverlapSeconds. Then the cloud deletes the
// retiring key.
func (ac *access) RotateSigningKey(ctx context.Context, req cloudsim.RotateSigningKey) (k cloudsim.SigningKey, err error) {
	if err := req.Validate(); err != nil {
		return k, err
	}
	err = ac.update(ctx, func(tx *store.Tx, call Call) error {
		k, err = idempotent(tx, call, signingKeys, req, func() (cloudsim.SigningKey, error) {
			old, err := activeKey(tx, req.Use)
			if err != nil {
				return old, err
			}
			if err := retireKey(tx, old, time.Duration(req.OverlapSeconds)*time.Second); err != nil {
				return old, err
			}
			return newKey(tx, req.Use)
		})
		return err
	})
	return publicKey(k), err
}

func retireKey(tx *store.Tx, k cloudsim.SigningKey, overlap time.Duration) error {
	if err := k.Move(cloudsim.Retire); err != nil {
		return err
	}
	at := tx.Now.Add(overlap)
	k.RetiresAt = &at
	if overlap == 0 {
		return forgetKey(tx, k, cloudsim.Settle)
	}
	if err := signingKeys.Put(tx, &k); err != nil {
		return err
	}
	return tx.Later(at, store.Work{Kind: cloudsim.KindSigningKey, ID: string(k.ID), Verb: cloudsim.Settle})
}

func forgetKey(tx *store.Tx, k cloudsim.SigningKey, verb cloudsim.Verb) error {
	if err := k.Move(verb); err != nil {
		return err
	}
	return signingKeys.Delete(tx, &k)
}

func (ac *access) settledKey(tx *store.Tx, k *cloudsim.SigningKey) error {
	return forgetKey(tx, *k, cloudsim.Settle)
}

// GetSigningKey returns a signing key without its fields Private and KeyID.
func (ac *access) GetSigningKey(ctx context.Context, id cloudsim.SigningKeyID) (cloudsim.SigningKey, error) {
	k, err := read(ctx, ac.core, signingKeys, string(id))
	return publicKey(k), err
}

// ListSigningKeys returns one page of signing keys without their fields Private and KeyID.
func (ac *access) ListSigningKeys(ctx context.Context, o cloudsim.ListOptions) (l cloudsim.List[cloudsim.SigningKey], err error) {
	if ctx, err = withoutProject(ctx); err != nil {
		return l, err
	}
	return listPage(ctx, ac.core, signingKeys, o, nil)
}

// DeleteSigningKey deletes a retiring key. All signatures of this key become invalid immediately.
// DeleteSigningKey returns Conflict for an active key.
func (ac *access) DeleteSigningKey(ctx context.Context, id cloudsim.SigningKeyID) error {
	return ac.update(ctx, func(tx *store.Tx, call Call) error {
		k, err := get(tx, call, signingKeys, string(id))
		if err != nil {
			return err
		}
		return forgetKey(tx, k, cloudsim.Delete)
	})
}

// KeySet returns the public keys of all signing keys. The call needs no authorization, because
// every program that verifies tokens needs these public keys.
func (ac *access) KeySet() (set cloudsim.KeySet, err error) {
	err = ac.store.View(func(tx *store.Tx) error {
		set.Keys = []json.RawMessage{}
		for k, err := range signingKeys.Scan(tx, "", "") {
			if err != nil {
				return err
			}
			key, err := decodeKey(k)
			if err != nil {
				return err
			}
			raw, err := jose.JSONWebKey{Key: &key.PublicKey, KeyID: k.KeyID, Algorithm: string(jose.ES256), Use: "sig"}.MarshalJSON()
			if err != nil {
				return err
			}
			set.Keys = append(set.Keys, raw)
		}
		return nil
	})
	return set, err
}

// KeySetPath is the URL path at which the API serves the result of KeySet.
const KeySetPath = "/.well-known/jwks.json"

// OpenIDConfiguration returns the cloud's metadata as an OpenID issuer.
func (ac *access) OpenIDConfiguration() cloudsim.OpenIDConfiguration {
	return cloudsim.OpenIDConfiguration{
		Issuer: ac.cfg.Issuer, JWKSURI: ac.cfg.Issuer + KeySetPath,
		ResponseTypes: []string{"id_token"}, SubjectTypes: []string{"public"}, Algorithms: []string{string(jose.ES256)},
	}
}

// verify decodes the claims of a token. It checks that the token was signed by
// a key for the given use. The caller must check the claims. The parameter name
// describes the token in errors, for example "bearer token".
func verify(tx *store.Tx, use cloudsim.KeyUse, name string, t *jwt.JSONWebToken, claims any) error {
	kid := t.Headers[0].KeyID // ParseSigned accepts only tokens with one signature
	found, err := signingKeys.Lookup(tx, byKeyID, kid)
	if err != nil {
		return err
	}
	if len(found) == 0 || found[0].Use != use {
		return cloudsim.Errorf(cloudsim.Unauthenticated, "the %s is signed with a key that the cloud does not have (any more), or that has another use: %.64q", name, kid)
	}
	key, err := decodeKey(found[0])
	if err != nil {
		return err
	}
	if err := t.Claims(&key.PublicKey, claims); err != nil {
		return cloudsim.Errorf(cloudsim.Unauthenticated, "the signature of the %s is wrong", name)
	}
	return nil
}
