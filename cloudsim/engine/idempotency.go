package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// idempotencyKeys maps each Idempotency-Key of a caller and project to the resource that a create
// call with this key created. If a client loses the answer, it can repeat the call and gets the
// same resource. The store keeps each key for 24 hours (see the constant retention).
var idempotencyKeys = store.Notes[madeByKey]{Name: "idempotency"}

const kindIdempotencyKey cloudsim.ResourceKind = "idempotencyKey"

type madeByKey struct {
	Kind    cloudsim.ResourceKind `json:"kind"`
	Request string                `json:"request"` // hash of the request
	ID      string                `json:"id"`
}

// idempotent runs createFn and returns the new resource. If an earlier call of the same caller and
// project with the same Idempotency-Key created a resource, idempotent returns that resource
// instead. It returns Conflict if the earlier call had a different request, or if that resource no
// longer exists.
func idempotent[T any](tx *store.Tx, call Call, t store.Table[T], req any, createFn func() (T, error)) (v T, err error) {
	if call.IdempotencyKey == "" {
		return createFn()
	}
	words, err := json.Marshal(req)
	if err != nil {
		return v, err
	}
	sum := sha256.Sum256(words)
	hash := hex.EncodeToString(sum[:])
	key := string(call.tokenOrAccount()) + "\x00" + string(call.Project) + "\x00" + call.IdempotencyKey
	made, ok, err := idempotencyKeys.Get(tx, key)
	switch {
	case err != nil:
		return v, err
	case ok && (made.Kind != t.Kind || made.Request != hash):
		return v, cloudsim.Errorf(cloudsim.Conflict, "the Idempotency-Key %q was used for another request, which created %s %s: use another key", call.IdempotencyKey, made.Kind, made.ID)
	case ok && !t.Has(tx, made.ID):
		return v, cloudsim.Errorf(cloudsim.Conflict, "the request with the Idempotency-Key %q created %s %s, which was deleted: use another key to create another resource", call.IdempotencyKey, made.Kind, made.ID)
	case ok:
		return get(tx, call, t, made.ID)
	}
	if v, err = createFn(); err != nil {
		return v, err
	}
	if err := idempotencyKeys.Put(tx, key, madeByKey{t.Kind, hash, t.ID(&v)}); err != nil {
		return v, err
	}
	return v, tx.Later(tx.Now.Add(retention), store.Work{Kind: kindIdempotencyKey, ID: key, Verb: cloudsim.Delete})
}
