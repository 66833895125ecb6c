package registry

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

func TestManifestsUseQuota(t *testing.T) {
	d := newDisk(t)
	st, err := store.Open(filepath.Join(t.TempDir(), "cloud.db"))
	d.ok(err)
	defer st.Close()
	e := engine.New(slog.New(slog.DiscardHandler), st, engine.Default())
	d.ok(e.Prepare())
	r, err := e.CreateRepository(engine.AsCloud(t.Context()), cloudsim.CreateRepository{Name: "c/big"})
	d.ok(err)
	d.ok(d.claimFolder("c/big", r, e.Repositories))
	q := &quotaChecker{engine: e, files: d.files}
	before, err := q.measure(r.Project)
	d.ok(err)
	_, err = d.manifestOf("c/big", "v1", imageIndex, map[string]any{
		"schemaVersion": 2, "mediaType": imageIndex, "manifests": []any{}, "annotations": map[string]string{"pad": strings.Repeat("x", 1<<20)},
	})
	d.ok(err)
	after, err := q.measure(r.Project)
	if err != nil || after-before < 1<<20 {
		t.Errorf("after a manifest of 1 MiB: got %d bytes more, error %v; want at least 1 MiB", after-before, err)
	}
}
