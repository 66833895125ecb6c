package engine

import (
	"context"
	"crypto/hmac"
	"errors"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

var accessKeys = store.Table[cloudsim.AccessKey]{
	Kind: cloudsim.KindAccessKey, Prefix: "ak",
	ID:     func(k *cloudsim.AccessKey) string { return string(k.ID) },
	Meta:   func(k *cloudsim.AccessKey) *cloudsim.Meta { return &k.Meta },
	Public: publicAccessKey,
	Index: map[string]func(*cloudsim.AccessKey) []string{
		byAccount: func(k *cloudsim.AccessKey) []string { return ofAccount(k.ServiceAccount) },
	},
}

func publicAccessKey(k cloudsim.AccessKey) cloudsim.AccessKey {
	k.StoredSecret, k.Secret = "", ""
	return k
}

// CreateAccessKey creates an access key of a service account. The returned key contains its Secret.
// No other method returns the Secret. The caller must have all permissions of the account, because
// the new key gives these permissions to the caller. CreateAccessKey returns Exists if the name is
// in use.
func (ac *access) CreateAccessKey(ctx context.Context, req cloudsim.CreateAccessKey) (k cloudsim.AccessKey, err error) {
	if err := req.Validate(); err != nil {
		return k, err
	}
	secret := NewSecret()
	err = ac.update(ctx, func(tx *store.Tx, call Call) error {
		var of cloudsim.Token
		if err := ac.placeToken(tx, call, &of, cloudsim.CreateToken{ServiceAccount: req.ServiceAccount}); err != nil {
			return err
		}
		have, err := accessKeys.Named(tx, of.Project, req.Name)
		if err := checkSecretName(cloudsim.KindAccessKey, req.Name, string(have.ID), err); err != nil {
			return err
		}
		id, err := accessKeys.NextID(tx)
		if err != nil {
			return err
		}
		k = cloudsim.AccessKey{
			ID: cloudsim.AccessKeyID(id), Meta: cloudsim.Meta{Name: req.Name, Project: of.Project},
			ServiceAccount: of.ServiceAccount, StoredSecret: secret,
		}
		if k.Name == "" {
			k.Name = id
		}
		return accessKeys.Put(tx, &k)
	})
	if err != nil {
		return cloudsim.AccessKey{}, err
	}
	k = publicAccessKey(k)
	k.Secret = secret
	return k, nil
}

// GetAccessKey returns an access key without its secret.
func (ac *access) GetAccessKey(ctx context.Context, id cloudsim.AccessKeyID) (cloudsim.AccessKey, error) {
	k, err := read(ctx, ac.core, accessKeys, string(id))
	return publicAccessKey(k), err
}

// ListAccessKeys returns one page of access keys, without their secrets.
func (ac *access) ListAccessKeys(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[cloudsim.AccessKey], error) {
	return listPage(ctx, ac.core, accessKeys, o, nil)
}

// DeleteAccessKey deletes an access key. From the next call on, the cloud refuses requests that are
// signed with this key. The cloud also ends running watches if their request was signed with this
// key.
func (ac *access) DeleteAccessKey(ctx context.Context, id cloudsim.AccessKeyID) error {
	return ac.update(ctx, func(tx *store.Tx, call Call) error {
		k, err := get(tx, call, accessKeys, string(id))
		if err != nil {
			return err
		}
		return accessKeys.Delete(tx, &k)
	})
}

// verifySignature verifies a bearer token that contains an AWS signature (Signature Version 4). It
// returns Unauthenticated in these cases:
//   - The access key or the session token does not exist, or they do not belong together.
//   - The session token has expired.
//   - The signature is wrong, or its time is more than SignatureSkew after the cloud's time.
//
// verifySignature does not refuse expired signatures. The caller must also call signerToken, which
// refuses them. An error of verifySignature contains the name of the wrong part of the signature. A
// dialect (a server for another cloud's API) translates this name to an error code of that API.
func verifySignature(tx *store.Tx, token string) (credential, error) {
	s, ok := cloudsim.ParseSignature(token)
	if !ok {
		return credential{}, cloudsim.Errorf(cloudsim.Unauthenticated, "the token is not a signature of AWS Signature Version 4")
	}
	shown := credential{key: s.AccessKey, until: s.Time.Add(cloudsim.SignatureSkew)}
	var secret string
	var err error
	if s.SessionToken != "" {
		shown.hash = hashSecret(s.SessionToken)
		secret = cloudsim.Token{Secret: s.SessionToken}.AccessKey().Secret
		_, err = shown.session(tx)
	} else {
		var k cloudsim.AccessKey
		k, err = shown.accessKey(tx)
		secret = k.StoredSecret
	}
	switch {
	case err != nil:
		return credential{}, err
	case !hmac.Equal([]byte(s.Sign(secret)), []byte(s.Signature)):
		return credential{}, refuseSignature(cloudsim.SignatureValueField, "the signature does not match the request and the secret of access key "+string(s.AccessKey))
	case s.Time.After(tx.Now.Add(cloudsim.SignatureSkew)):
		return credential{}, refuseSignature(cloudsim.SignatureTimeField, "the time of the signature is more than 15 minutes after the cloud's time: compare the client's clock with 'allinone cloud clock'")
	}
	return shown, nil
}

// signerToken returns the token that determines the permissions of a signed request. Credential c
// must be a result of verifySignature. If the request has no session token, signerToken returns a
// new token for the service account of the access key. It does not store this token. signerToken
// returns Unauthenticated if the access key or the session token no longer exists. It also returns
// Unauthenticated if the session token or the signature has expired.
func (c credential) signerToken(tx *store.Tx) (t cloudsim.Token, err error) {
	if c.hash != "" {
		t, err = c.session(tx)
	} else {
		var k cloudsim.AccessKey
		k, err = c.accessKey(tx)
		t = cloudsim.Token{Meta: cloudsim.Meta{Name: k.Name, Project: k.Project}, ServiceAccount: k.ServiceAccount}
	}
	if err == nil && tx.Now.After(c.until) {
		err = refuseSignature(cloudsim.SignatureTimeField, "the signature has expired: its time is more than 15 minutes before the cloud's time: compare the client's clock with 'allinone cloud clock'")
	}
	return t, err
}

// session returns the stored token with the hash c.hash. The secret of this token is the session
// token of the signed request. session returns Unauthenticated if the stored token does not exist,
// has expired, or does not belong to the access key of c.
func (c credential) session(tx *store.Tx) (cloudsim.Token, error) {
	found, err := tokens.Lookup(tx, byHash, c.hash)
	if err != nil {
		return cloudsim.Token{}, err
	}
	if len(found) == 0 || found[0].ID != cloudsim.TokenID(c.key) {
		return cloudsim.Token{}, refuseSignature(cloudsim.SignatureSessionField, "the session token of access key "+string(c.key)+" is not known: request new credentials")
	}
	if t := found[0]; t.ExpiresAt != nil && !tx.Now.Before(*t.ExpiresAt) {
		return t, refuseSignature(cloudsim.SignatureExpiryField, "the session token of access key "+string(c.key)+" expired at "+t.ExpiresAt.Format(time.RFC3339)+": request new credentials")
	}
	return found[0], nil
}

func (c credential) accessKey(tx *store.Tx) (cloudsim.AccessKey, error) {
	k, err := accessKeys.Get(tx, string(c.key))
	if errors.Is(err, cloudsim.NotFound) {
		err = refuseSignature(cloudsim.SignatureKeyField, "the access key "+string(c.key)+" does not exist")
	}
	return k, err
}

func refuseSignature(field, reason string) error {
	return &cloudsim.Error{Kind: cloudsim.Unauthenticated, Msg: reason, Fields: []cloudsim.FieldError{{Field: field, Reason: reason}}}
}
