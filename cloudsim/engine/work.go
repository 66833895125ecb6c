package engine

import (
	"errors"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// beginWork begins an operation on resource v and stores v. beginWork does not change the state of
// v, so the caller must first set the new state. If the operation takes no time, and no hold or
// fault blocks the operation, beginWork calls onSettled at once. Otherwise settleDue completes the
// operation later. The parameter profileTime is the operation's duration in Config.Profile. A
// stored duration overrides profileTime (see SetDurations).
func beginWork[T any](e *Engine, tx *store.Tx, call Call, t store.Table[T], v *T, verb cloudsim.Verb, profileTime time.Duration, onSettled func(*store.Tx, *T) error) error {
	waits, err := e.begin(tx, call, verb, t.Kind, t.ID(v), t.Meta(v), profileTime)
	if err != nil {
		return err
	}
	if err := t.Put(tx, v); err != nil || waits {
		return err
	}
	return onSettled(tx, v)
}

// settleDue completes a due work item. It does nothing if the resource no longer exists, or if the
// resource has a newer operation. It also does nothing if the operation is over, or if a hold or a
// fault blocks the operation.
func settleDue[T any](tx *store.Tx, t store.Table[T], w store.Work, settled func(*store.Tx, *T) error) error {
	v, err := t.Get(tx, w.ID)
	switch {
	case errors.Is(err, cloudsim.NotFound):
		return nil
	case err != nil:
		return err
	case t.Meta(&v).Operation != w.Operation:
		return nil
	}
	if nothing, err := mustNotSettle(tx, w.Operation); nothing || err != nil {
		return err
	}
	return settled(tx, &v)
}
