package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
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

// TestKillDuringLoad kills a cloud while the cloud loads a saved state. Afterward the cloud has
// either the old contents or the contents of the saved state, and its disks have the matching data.
// If the cloud acknowledged the load before the kill, the cloud has the contents of the saved
// state. No unfinished files remain.
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
		v.fillDisks(c, name)
		if _, err := c.SaveState(t.Context(), cloudsim.SaveState{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	now, loads := "two", map[bool]int{}
	for range rounds {
		to := map[string]string{"one": "two", "two": "one"}[now]
		ctx, stop := context.WithCancel(t.Context())
		loaded := make(chan error, 1)
		go func() { loaded <- c.LoadState(ctx, to, cloudsim.LoadState{}) }()
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
			t.Fatalf("the database file is damaged: %v", err)
		}
		v.start()
		c = v.client()
		now = loadedState(t, c, instances)
		v.haveDisks(now)
		if acknowledged && now != to {
			t.Fatalf("the cloud acknowledged the load of state %s, but its state is %s", to, now)
		}
		loads[now == to]++
		for _, folder := range []string{"states", "disks"} {
			if left, _ := filepath.Glob(filepath.Join(v.dir, folder, ".*")); len(left) > 0 {
				t.Fatalf("remaining files: %v", left)
			}
		}
	}
	v.kill()
	t.Logf("%d loads were complete at the kill, %d loads were not", loads[true], loads[false])
}

// disksOf maps the name of each saved state to the ids of its disks. Both states contain
// disk-000001, with different data.
var disksOf = map[string][]string{"one": {"disk-000001", "disk-000002"}, "two": {"disk-000001"}}

// fillDisks creates the disks of the state with the given name, and writes this name many
// times into each disk.
func (v *victim) fillDisks(c *client.Client, stateName string) {
	v.t.Helper()
	for _, want := range disksOf[stateName] {
		d, err := c.CreateDisk(v.t.Context(), cloudsim.CreateDisk{Name: want, Zone: "sim-1a", Type: "balanced", SizeGiB: 1})
		if err != nil || string(d.ID) != want {
			v.t.Fatalf("new disk: got %+v, error %v", d, err)
		}
		for end := time.Now().Add(time.Minute); d.Status.SizeGiB == 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if d, err = c.GetDisk(v.t.Context(), d.ID); err != nil {
				v.t.Fatal(err)
			}
		}
		f, err := os.OpenFile(v.image(want), os.O_WRONLY, 0)
		if err != nil {
			v.t.Fatal(err)
		}
		_, err = f.WriteAt(dataOf(stateName), 1<<29)
		if err := errors.Join(err, f.Close()); err != nil {
			v.t.Fatal(err)
		}
	}
}

// haveDisks fails the test if the cloud does not have the disks and data of the state
// with the given name.
func (v *victim) haveDisks(stateName string) {
	v.t.Helper()
	files, err := filepath.Glob(v.image("*"))
	if err != nil || len(files) != len(disksOf[stateName]) {
		v.t.Fatalf("disk files of state %s: %v, error %v", stateName, files, err)
	}
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			v.t.Fatal(err)
		}
		want := dataOf(stateName)
		have := make([]byte, len(want))
		_, err = f.ReadAt(have, 1<<29)
		if err := errors.Join(err, f.Close()); err != nil || !bytes.Equal(have, want) {
			v.t.Fatalf("%s does not have the data of its state, error %v", path, err)
		}
	}
}

func dataOf(word string) []byte { return bytes.Repeat([]byte(word), 2<<20) }

// checkFile returns an error if the data file of a killed cloud cannot be opened or has damage.
func checkFile(dir string) error {
	st, err := store.Open(filepath.Join(dir, "cloud.db"))
	if err != nil {
		return err
	}
	return errors.Join(engine.New(slog.New(slog.DiscardHandler), st, engine.Default()).Check(), st.Close())
}

func populate(t *testing.T, c *client.Client, prefix string, n int) {
	t.Helper()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < n; i += 8 {
				if _, err := c.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: fmt.Sprintf("%s-%d", prefix, i), Zone: "sim-1a", Type: "small"}); err != nil {
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

// loadedState returns the name of the saved state that the cloud contains. Each instance of a saved
// state has a name that begins with the state's name. The test fails if the cloud does not have
// exactly the n instances of one state.
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
	t.Fatalf("the instances belong to no saved state: %v", words)
	return ""
}
