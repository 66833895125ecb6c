package engine_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// TestKeysRotate proves that the cloud deletes a retiring key after the requested overlap, even if
// the cloud was down when the overlap ended. It also proves that a caller cannot delete an active
// key.
func TestKeysRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := file(t)
		e, down := boot(t, path, instant)
		ctx := enter(t, e, "secret", "")
		keys := func() (words []string) {
			t.Helper()
			l, err := e.ListSigningKeys(ctx, cloudsim.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range l.Items {
				if len(k.Private) > 0 {
					t.Fatal("a list contains private keys")
				}
				words = append(words, string(k.ID)+" "+string(k.Use)+" "+string(k.State))
			}
			return words
		}
		want := func(stage string, words ...string) {
			t.Helper()
			if got := keys(); strings.Join(got, ", ") != strings.Join(words, ", ") {
				t.Errorf("signing keys %s: got %v, want %v", stage, got, words)
			}
		}
		want("at first", "key-000001 identity active", "key-000002 registry active")
		for _, overlap := range []int64{60, 30} {
			if _, err := e.RotateSigningKey(ctx, cloudsim.RotateSigningKey{Use: "registry", OverlapSeconds: overlap}); err != nil {
				t.Fatal(err)
			}
		}
		want("after two rotations", "key-000001 identity active", "key-000002 registry retiring", "key-000003 registry retiring", "key-000004 registry active")
		if err := e.DeleteSigningKey(ctx, "key-000004"); !errors.Is(err, cloudsim.Conflict) {
			t.Errorf("deletion of an active key: got error %v", err)
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		want("after 31 s", "key-000001 identity active", "key-000002 registry retiring", "key-000004 registry active")
		down()
		time.Sleep(time.Minute)
		e, down = boot(t, path, instant)
		defer down()
		ctx = enter(t, e, "secret", "")
		synctest.Wait()
		want("after a restart", "key-000001 identity active", "key-000004 registry active")
		if set, err := e.KeySet(); err != nil || len(set.Keys) != 2 {
			t.Errorf("published key set: got %v, error %v, want 2 keys", set.Keys, err)
		}
		if _, err := e.RotateSigningKey(ctx, cloudsim.RotateSigningKey{Use: "registry", OverlapSeconds: 3600}); err != nil {
			t.Fatal(err)
		}
		if err := e.DeleteSigningKey(ctx, "key-000004"); err != nil {
			t.Errorf("deletion of a retiring key: got error %v", err)
		}
	})
}
