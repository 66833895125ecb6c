package engine_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane/disks"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/statefile"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
	"github.com/cloudsim-dev/allinone/cloudsim/store/storetest"
)

type brokenAfterStage struct {
	engine.DiskFiles
	breakSync func()
}

func (b brokenAfterStage) Stage(ctx context.Context, r *statefile.Reader, ids []string) (cloudsim.StagedData, error) {
	s, err := b.DiskFiles.Stage(ctx, r, ids)
	b.breakSync()
	return s, err
}

// TestLoadWithAFailedSync proves that the cloud keeps the staged disk data until the next start if
// a sync fails during a load. The staged data is the new disk data, which a load prepares in a
// separate folder. After the failed sync, the cloud does not know whether the file of the store
// contains the old records or the new records. In this test, the file contains the old records, so
// the next start deletes the staged data.
func TestLoadWithAFailedSync(t *testing.T) {
	dir := t.TempDir()
	path, data := filepath.Join(dir, "cloud.db"), filepath.Join(dir, "disks")
	var mend func()
	breakSync := func() { mend = storetest.BreakSync(t, path) }
	start := func() (*engine.Engine, func()) {
		return boot(t, path, func(c *engine.Config) {
			c.StateDir, c.DiskFiles = filepath.Join(dir, "states"), brokenAfterStage{disks.NewFiles(data), breakSync}
		})
	}
	staged := func(want int) {
		t.Helper()
		if got, _ := filepath.Glob(filepath.Join(data, ".load-*")); len(got) != want {
			t.Errorf("folders of staged data: got %v, want %d", got, want)
		}
	}
	ctx := engine.AsCloud(t.Context())
	e, stop := start()
	if _, err := e.SaveState(ctx, cloudsim.SaveState{Name: "s"}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second load stages no data
		if err := e.LoadState(ctx, "s", cloudsim.LoadState{RecordsOnly: true}); !errors.Is(err, store.ErrReadOnly) {
			t.Errorf("load with a failed sync: got error %v, want ErrReadOnly", err)
		}
		staged(1)
	}
	mend()
	stop()
	_, stop = start()
	defer stop()
	staged(0)
}
