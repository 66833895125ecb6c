package store

import (
	"fmt"

	json "github.com/go-json-experiment/json/v1"
)

// Notes stores internal values of the engine by key. Notes have no events and
// no indexes, and the API does not show them.
type Notes[T any] struct{ Name string }

// Get returns the note at key, or false if the note does not exist.
func (n Notes[T]) Get(tx *Tx, key string) (v T, ok bool, err error) {
	b := tx.read([]byte("note/" + n.Name))
	if b == nil {
		return v, false, nil
	}
	raw := b.Get([]byte(key))
	if raw == nil {
		return v, false, nil
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, false, fmt.Errorf("note %s %s is damaged: %w", n.Name, key, err)
	}
	return v, true, nil
}

// Put writes the note at key.
func (n Notes[T]) Put(tx *Tx, key string, v T) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	b, err := tx.write([]byte("note/" + n.Name))
	if err != nil {
		return err
	}
	return b.Put([]byte(key), raw)
}

// Delete removes the note at key, if the note exists.
func (n Notes[T]) Delete(tx *Tx, key string) error {
	b, err := tx.write([]byte("note/" + n.Name))
	if err != nil {
		return err
	}
	return b.Delete([]byte(key))
}
