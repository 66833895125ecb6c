package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/gorilla/mux"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func (a *api) signingKeyRoutes() {
	e := a.engine
	handle(a, op{id: "signingKeys.rotate", method: post, path: "/v1/signing-keys", summary: "Create a new signing key and retire the previous key", status: http.StatusCreated, access: engine.Admin, idemKey: true},
		func(ctx context.Context, in *create[cloudsim.RotateSigningKey]) (*body[cloudsim.SigningKey], error) {
			v, err := e.RotateSigningKey(ctx, in.Body)
			return answer(v, v.Revision, err)
		})
	lists(a, "signingKeys", "/v1/signing-keys", "signing keys, without their private keys", engine.Read, e.ListSigningKeys)
	gets(a, "signingKeys", "/v1/signing-keys/{id}", "a signing key, without its private key", engine.Read, e.GetSigningKey, revOf[cloudsim.SigningKey])
	deletes(a, "signingKeys", "/v1/signing-keys/{id}", "Revoke the signatures of a retiring key at once", engine.Admin, e.DeleteSigningKey)
}

// wellKnown adds the routes for programs that verify the cloud's tokens. The routes need no token.
// The programs may cache an answer for five minutes. So after a rotation, a cached answer can lack
// the new key.
func (a *api) wellKnown(router *mux.Router) {
	show := func(path string, get func() (any, error)) {
		router.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			v, err := get()
			if err != nil {
				a.refuse(w, r, err)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Cache-Control", "public, max-age=300")
			_ = json.NewEncoder(w).Encode(v)
		}).Methods(http.MethodGet)
	}
	show("/.well-known/openid-configuration", func() (any, error) { return a.engine.OpenIDConfiguration(), nil })
	show(engine.KeySetPath, func() (any, error) { return a.engine.KeySet() })
}
