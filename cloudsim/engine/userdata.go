package engine

import (
	"context"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// userData stores the user data of instances by instance id.
var userData = store.Notes[string]{Name: "userData"}

// GetUserData returns the user data of an instance.
func (e *Engine) GetUserData(ctx context.Context, id cloudsim.InstanceID) (d cloudsim.UserData, err error) {
	call, err := callOf(ctx)
	if err != nil {
		return d, err
	}
	err = e.store.View(func(tx *store.Tx) error {
		if _, err := get(tx, call, instances, string(id)); err != nil {
			return err
		}
		d.UserData, _, err = userData.Get(tx, string(id))
		return err
	})
	return d, err
}

func sameUserData(tx *store.Tx, id cloudsim.InstanceID, data string) (bool, error) {
	have, _, err := userData.Get(tx, string(id))
	return have == data, err
}

func putUserData(tx *store.Tx, id cloudsim.InstanceID, s string) error {
	if s == "" {
		return nil
	}
	return userData.Put(tx, string(id), s)
}
