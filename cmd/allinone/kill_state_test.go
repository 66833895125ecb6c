package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// A cloud that is killed while it loads a state is the one before or the one
// that was loaded, whole; what was acknowledged is the one that was loaded; and
// nothing is left of what was on its way.
func TestKillDuringLoad(t *testing.T) {
	rounds, instances := 40, 400
	if testing.Short() {
		rounds, instances = 6, 100
	}
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -kill-seed=%d", seed)
	v := &victim{t: t, dir: t.TempDir(), rng: rand.New(rand.NewPCG(seed, 7))}
	v.start()
	c := v.client()
	for _, name := range []string{"one", "two"} {
		if err := c.ResetState(t.Context()); err != nil {
			t.Fatal(err)
		}
		populate(t, c, name, instances)
		if _, err := c.SaveState(t.Context(), cloudsim.SaveState{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	now, loads := "two", map[bool]int{}
	for range rounds {
		to := map[string]string{"one": "two", "two": "one"}[now]
		ctx, stop := context.WithCancel(t.Context())
		loaded := make(chan error, 1)
		go func() { loaded <- c.LoadState(ctx, to) }()
		select {
		case err := <-loaded:
			loaded <- err
		case <-time.After(time.Duration(v.rng.IntN(400)) * time.Millisecond):
		}
		v.kill()
		stop()
		acknowledged := <-loaded == nil
		c.HTTP.CloseIdleConnections()
		if err := checkFile(v.dir); err != nil {
			t.Fatalf("the file is damaged: %v", err)
		}
		v.start()
		c = v.client()
		now = loadedState(t, c, instances)
		if acknowledged && now != to {
			t.Fatalf("%s was loaded, and it is %s", to, now)
		}
		loads[now == to]++
		if left, _ := filepath.Glob(filepath.Join(v.dir, "states", ".*")); len(left) > 0 {
			t.Fatalf("left behind: %v", left)
		}
	}
	v.kill()
	t.Logf("%d loads were done when the cloud was killed, %d were not", loads[true], loads[false])
}

// checkFile reports damage in the file of a dead cloud.
func checkFile(dir string) error {
	st, err := store.Open(filepath.Join(dir, "cloud.db"))
	if err != nil {
		return err
	}
	return errors.Join(engine.New(slog.New(slog.DiscardHandler), st, engine.Default()).Check(), st.Close())
}

// populate makes instances whose names begin with a word.
func populate(t *testing.T, c *client.Client, word string, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < n; i += 8 {
				if _, err := c.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: fmt.Sprintf("%s-%d", word, i), Zone: "sim-1a", Type: "small"}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// loadedState says with which word all instances begin.
func loadedState(t *testing.T, c *client.Client, n int) string {
	t.Helper()
	all, _, err := cloudsim.All(t.Context(), c.ListInstances, cloudsim.ListOptions{Limit: cloudsim.MaxPageSize})
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]int{}
	for _, i := range all {
		word, _, _ := strings.Cut(i.Name, "-")
		words[word]++
	}
	for word, have := range words {
		if have == n && len(words) == 1 {
			return word
		}
	}
	t.Fatalf("it is no state that was saved: %v", words)
	return ""
}
