package disks_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/dataplane/disks"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/internal/eventually"
)

// withFiles runs a cloud that keeps the data of its disks in dir. The parameter states is the
// folder in which the cloud saves states. If states is "", the cloud uses a temporary folder.
func withFiles(t *testing.T, dir, states string) *client.Client {
	t.Helper()
	files := disks.NewFiles(dir)
	return cloudtest.Start(t, cloudtest.WithConfig(func(c *engine.Config) { c.DiskData, c.DiskFiles, c.StateDir = true, files, states }),
		cloudtest.WithPart(func(ctx context.Context, e *engine.Engine) error {
			return disks.Run(engine.AsCloud(ctx), slog.New(slog.DiscardHandler), disks.Config{Dir: dir, Files: files}, e)
		}))
}

func whole(t *testing.T, c *client.Client, id cloudsim.DiskID, gib int) {
	t.Helper()
	eventually.True(t, "the file of "+string(id), func() bool { return status(t, c, id) == cloudsim.DiskStatus{SizeGiB: gib} })
}

func ok(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// A saved state has the data of disks and snapshots. When a cloud loads the state, it restores this
// data. The restored files are sparse, like the saved files. The cloud also removes the data of
// each disk that is not in the state. Another cloud can load the state, too.
func TestStatesHaveData(t *testing.T) {
	dir := t.TempDir()
	c := withFiles(t, dir, "")
	a := create(t, c, "a", 2)
	whole(t, c, a.ID, 2)
	for _, at := range []int64{0, 1<<30 + 5, 2<<30 - 4} {
		write(t, disks.Path(dir, a.ID), at, "then")
	}
	shot := snapshot(t, c, "shot", a.ID)
	awaitOperation(t, c, shot)
	s, err := c.SaveState(t.Context(), cloudsim.SaveState{Name: "then"})
	if err != nil || !s.DiskData || s.Bytes < 6*4096 || s.Bytes > 1<<20 {
		t.Fatalf("saved state: got %+v, error %v; want disk data of at most 1 MiB", s, err)
	}
	var out bytes.Buffer
	ok(t, c.ExportState(t.Context(), "then", &out))

	write(t, disks.Path(dir, a.ID), 0, "late")
	b := create(t, c, "b", 1)
	whole(t, c, b.ID, 1)
	ok(t, c.LoadState(t.Context(), "then", cloudsim.LoadState{}))
	if !isGone(disks.Path(dir, b.ID)) {
		t.Error("the load kept the file of a disk that is not in the state")
	}
	isThen(t, c, dir, a.ID, shot.ID)

	ok(t, c.ResetState(t.Context()))
	if !isGone(disks.Path(dir, a.ID)) || !isGone(disks.SnapshotPath(dir, shot.ID)) {
		t.Error("disk files exist after the reset")
	}
	fresh := create(t, c, "fresh", 2)
	if fresh.ID != a.ID {
		t.Fatalf("first disk after the reset: got ID %s, want the first ID again", fresh.ID)
	}
	whole(t, c, fresh.ID, 2)
	if got := read(t, disks.Path(dir, fresh.ID), 2<<30-4); got == "then" {
		t.Error("a new disk has the data of a deleted disk")
	}

	dir2 := filepath.Join(t.TempDir(), "disks")
	other := withFiles(t, dir2, "")
	if _, err := other.ImportState(t.Context(), "moved", bytes.NewReader(out.Bytes())); err != nil {
		t.Fatal(err)
	}
	ok(t, other.LoadState(t.Context(), "moved", cloudsim.LoadState{}))
	isThen(t, other, dir2, a.ID, shot.ID)
	if left, _ := filepath.Glob(filepath.Join(dir2, ".*")); len(left) > 0 {
		t.Errorf("temporary files exist: %v", left)
	}
}

// A saved state contains the data of each disk that has a file, even if the data plane has not
// reported the disk yet. A load with the option recordsOnly does not change the data of any disk.
func TestStatesHaveDataThatIsNotReported(t *testing.T) {
	dir := t.TempDir()
	c := cloudtest.Start(t, cloudtest.WithConfig(func(c *engine.Config) { c.DiskData, c.DiskFiles = true, disks.NewFiles(dir) }))
	d := create(t, c, "d", 1)
	path := disks.Path(dir, d.ID)
	save := func(name string) {
		t.Helper()
		if s, err := c.SaveState(t.Context(), cloudsim.SaveState{Name: name}); err != nil || !s.DiskData || s.Damage != "" {
			t.Fatalf("saved state: got %+v, error %v; want disk data without damage", s, err)
		}
	}
	holds := func(want string) {
		t.Helper()
		info, err := os.Stat(path)
		ok(t, err)
		if got := read(t, path, 0); got != want || info.Size() != 1<<30 {
			t.Errorf("disk: got data %q in %d bytes, want %q in 1 GiB", got, info.Size(), want)
		}
	}
	save("before")
	ok(t, os.WriteFile(path, []byte("then"), 0o600), os.Truncate(path, 1<<30))
	save("then")
	write(t, path, 0, "late")
	for _, state := range []string{"then", "before"} {
		ok(t, c.LoadState(t.Context(), state, cloudsim.LoadState{RecordsOnly: true}))
		holds("late")
	}
	ok(t, c.LoadState(t.Context(), "then", cloudsim.LoadState{}))
	holds("then")
	ok(t, c.LoadState(t.Context(), "before", cloudsim.LoadState{}))
	if !isGone(path) {
		t.Error("the load created a file for a disk without data")
	}
}

// A load with the option recordsOnly does not change the data of disks and snapshots. This is true
// even if the disks and snapshots were not ready at the time of the save.
func TestRecordsOnlyLoadKeepsData(t *testing.T) {
	dir := t.TempDir()
	engines := make(chan *engine.Engine, 1)
	c := cloudtest.Start(t, cloudtest.WithConfig(func(c *engine.Config) { c.DiskData, c.DiskFiles = true, disks.NewFiles(dir) }),
		cloudtest.WithPart(func(_ context.Context, e *engine.Engine) error { engines <- e; return nil }))
	d := create(t, c, "d", 1)
	shot := snapshot(t, c, "shot", d.ID)
	failed := create(t, c, "failed", 1)
	ok(t, (<-engines).ReportDisk(engine.AsCloud(t.Context()), failed.ID, cloudsim.DiskStatus{Error: "no space left on device"}))
	_, err := c.SaveState(t.Context(), cloudsim.SaveState{Name: "s", RecordsOnly: true})
	ok(t, err)
	paths := []string{disks.Path(dir, d.ID), disks.SnapshotPath(dir, shot.ID), disks.Path(dir, failed.ID)}
	for _, path := range paths {
		ok(t, os.WriteFile(path, []byte("late"), 0o600))
	}
	ok(t, c.LoadState(t.Context(), "s", cloudsim.LoadState{RecordsOnly: true}))
	for _, path := range paths {
		if got := read(t, path, 0); got != "late" {
			t.Errorf(`%s: got data %q, want "late"`, filepath.Base(path), got)
		}
	}
}

// If the cloud cannot move the disk data of a loaded state to the final paths, it tries again.
// Until it succeeds, it serves no disk and saves no state. After that, the disks contain the data
// of the loaded state.
func TestCloudRetriesMoveOfLoadedData(t *testing.T) {
	dir := t.TempDir()
	c := withFiles(t, dir, "")
	a := create(t, c, "a", 1)
	whole(t, c, a.ID, 1)
	write(t, disks.Path(dir, a.ID), 0, "then")
	_, err := c.SaveState(t.Context(), cloudsim.SaveState{Name: "then"})
	ok(t, err)
	write(t, disks.Path(dir, a.ID), 0, "late")
	// This directory has the name of a disk that is not in the state. The cloud tries to delete the
	// directory before it moves the data of the state into place. The deletion fails, because the
	// directory is not empty. So the cloud does not move the data.
	inTheWay := filepath.Join(dir, "disk-0000ff.img")
	ok(t, os.MkdirAll(filepath.Join(inTheWay, "full"), 0o700))
	if err := c.LoadState(t.Context(), "then", cloudsim.LoadState{}); err == nil {
		t.Fatal("the load succeeded")
	}
	if _, err := c.SaveState(t.Context(), cloudsim.SaveState{Name: "between"}); !errors.Is(err, cloudsim.Unavailable) || !strings.Contains(err.Error(), "not in place yet") {
		t.Errorf("save after a failed load: got error %v, want Unavailable", err)
	}
	b := create(t, c, "b", 1)
	if err := c.LoadState(t.Context(), "then", cloudsim.LoadState{}); err == nil {
		t.Fatal("the second load succeeded")
	}
	if !isGone(disks.Path(dir, b.ID)) {
		t.Error("the data plane created a disk file before the data of the load was in place")
	}
	ok(t, os.RemoveAll(inTheWay))
	whole(t, c, b.ID, 1)
	if got := read(t, disks.Path(dir, a.ID), 0); got != "then" {
		t.Errorf(`disk: got data %q, want "then"`, got)
	}
	_, err = c.SaveState(t.Context(), cloudsim.SaveState{Name: "after"})
	ok(t, err)
}

// isThen checks that a cloud has the data that TestStatesHaveData saved.
func isThen(t *testing.T, c *client.Client, dir string, d cloudsim.DiskID, s cloudsim.SnapshotID) {
	t.Helper()
	for _, path := range []string{disks.Path(dir, d), disks.SnapshotPath(dir, s)} {
		for at, want := range map[int64]string{0: "then", 1<<30 + 5: "then", 2<<30 - 4: "then", 1 << 20: "\x00\x00\x00\x00"} {
			if got := read(t, path, at); got != want {
				t.Errorf("%s: got data %q at %d, want %q", filepath.Base(path), got, at, want)
			}
		}
		info, err := os.Stat(path)
		if err != nil || info.Size() != 2<<30 {
			t.Fatalf("file: got %v, error %v; want 2 GiB", info, err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Blocks*512 > 1<<20 {
			t.Errorf("%s: got %d allocated bytes, want at most 1 MiB", filepath.Base(path), st.Blocks*512)
		}
	}
	whole(t, c, d, 2)
	restored := copyOf(t, c, cloudsim.CreateDisk{Name: "restored", SourceSnapshot: s})
	awaitOperation(t, c, restored)
	if got := read(t, disks.Path(dir, restored.ID), 1<<30+5); got != "then" {
		t.Errorf(`disk of the snapshot: got data %q, want "then"`, got)
	}
}

// While a disk is attached, the cloud refuses to load a saved state that contains the data of
// disks. The refused load changes nothing. A load with the option recordsOnly works.
func TestLoadWhileAttached(t *testing.T) {
	dir := t.TempDir()
	c := withFiles(t, dir, "")
	d := create(t, c, "d", 1)
	whole(t, c, d.ID, 1)
	_, err := c.SaveState(t.Context(), cloudsim.SaveState{Name: "s"})
	ok(t, err)
	i, err := c.CreateInstance(t.Context(), cloudsim.CreateInstance{Name: "i", Zone: d.Zone, Type: "small"})
	ok(t, err)
	_, err = c.AttachDisk(t.Context(), d.ID, cloudsim.AttachDisk{Instance: i.ID})
	ok(t, err)
	write(t, disks.Path(dir, d.ID), 0, "now.")
	err = c.LoadState(t.Context(), "s", cloudsim.LoadState{})
	if !errors.Is(err, cloudsim.Conflict) || !strings.Contains(err.Error(), string(d.ID)) || !strings.Contains(err.Error(), "recordsOnly") {
		t.Errorf("load without disk data: got error %v, want Conflict with the disk ID", err)
	}
	if got, err := c.GetInstance(t.Context(), i.ID); err != nil || got.Name != "i" {
		t.Errorf("instance after the refused load: got %+v, error %v", got, err)
	}
	ok(t, c.LoadState(t.Context(), "s", cloudsim.LoadState{RecordsOnly: true}))
	if _, err := c.GetInstance(t.Context(), i.ID); !errors.Is(err, cloudsim.NotFound) {
		t.Errorf("instance after the load: got error %v, want NotFound", err)
	}
	whole(t, c, d.ID, 1)
	if got := read(t, disks.Path(dir, d.ID), 0); got != "now." {
		t.Errorf(`disk: got data %q, want "now."`, got)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("temporary files exist: %v", left)
	}
}

// The cloud refuses a save with data if the file of a disk is missing. A save with the option
// recordsOnly works.
func TestDataThatCannotBeSaved(t *testing.T) {
	dir := t.TempDir()
	c := withFiles(t, dir, "")
	d := create(t, c, "d", 1)
	whole(t, c, d.ID, 1)
	// Create disk e, and wait until the data plane has handled the events of disk e. The data plane
	// handles events in the order of their revisions. So after the events of disk e, no old event
	// of disk d can make the file of d again.
	whole(t, c, create(t, c, "e", 1).ID, 1)
	ok(t, os.Remove(disks.Path(dir, d.ID)))
	if _, err := c.SaveState(t.Context(), cloudsim.SaveState{Name: "gone"}); !errors.Is(err, cloudsim.Conflict) || !strings.Contains(err.Error(), "recordsOnly") {
		t.Errorf("save without the file of a disk: got error %v, want Conflict", err)
	}
	s, err := c.SaveState(t.Context(), cloudsim.SaveState{Name: "records", RecordsOnly: true})
	if err != nil || s.DiskData {
		t.Errorf("state without disk data: got %+v, error %v", s, err)
	}
}

// The cloud refuses to import or load a saved state with damaged or incomplete disk data. The
// refused import or load does not change the data of disks. The cloud can load this state with the
// option recordsOnly.
func TestDamagedData(t *testing.T) {
	dir, states := t.TempDir(), t.TempDir()
	c := withFiles(t, dir, states)
	d := create(t, c, "d", 1)
	whole(t, c, d.ID, 1)
	write(t, disks.Path(dir, d.ID), 4096, "then")
	_, err := c.SaveState(t.Context(), cloudsim.SaveState{Name: "s"})
	ok(t, err)
	write(t, disks.Path(dir, d.ID), 4096, "now.")
	path := filepath.Join(states, "s.state")
	good, err := os.ReadFile(path)
	ok(t, err)
	for at := len(good) - 4000; at < len(good); at += 500 {
		bad := bytes.Clone(good)
		bad[at] ^= 1
		for damage, bad := range map[string][]byte{"flipped": bad, "cut": good[:at]} {
			if _, err := c.ImportState(t.Context(), "bad", bytes.NewReader(bad)); !errors.Is(err, cloudsim.Invalid) {
				t.Fatalf("%s at byte %d of %d: import: got error %v, want Invalid", damage, at, len(good), err)
			}
			ok(t, os.WriteFile(path, bad, 0o600))
			if err := c.LoadState(t.Context(), "s", cloudsim.LoadState{}); !errors.Is(err, cloudsim.Invalid) {
				t.Fatalf("%s at byte %d of %d: load: got error %v, want Invalid", damage, at, len(good), err)
			}
		}
	}
	if got := read(t, disks.Path(dir, d.ID), 4096); got != "now." {
		t.Errorf(`disk: got data %q, want "now."`, got)
	}
	if l, err := c.ListStates(t.Context()); err != nil || len(l.Items) != 1 {
		t.Errorf("states: got %+v, error %v; want 1", l.Items, err)
	}
	ok(t, c.LoadState(t.Context(), "s", cloudsim.LoadState{RecordsOnly: true}), c.DeleteState(t.Context(), "s"))
}

// The test imitates a cloud that is killed while it loads a saved state. If the cloud had not
// committed the records of the state, the next start removes the staged disk data. If the cloud
// had committed the records, the next start moves the staged disk data to the final paths.
func TestDataAfterAKill(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "disks")
	f := disks.NewFiles(dir)
	a, b := cloudsim.DiskID("disk-000001"), cloudsim.DiskID("disk-000002")
	ok(t, os.Mkdir(dir, 0o700))
	ok(t, os.WriteFile(disks.Path(dir, a), []byte("now."), 0o600), os.WriteFile(disks.Path(dir, b), []byte("new."), 0o600))
	stage := func() cloudsim.StagedData {
		t.Helper()
		s, err := f.Stage(t.Context(), dataOf(t, part{string(a), 4096, at(0), "then"}), nil)
		ok(t, err)
		return s
	}
	swap := func(to cloudsim.StagedData) { // calls Swap as the cloud does at its start
		t.Helper()
		ok(t, disks.NewFiles(dir).Swap(func() (cloudsim.StagedData, error) { return to, nil }))
	}
	stage()
	swap(cloudsim.StagedData{})
	if read(t, disks.Path(dir, a), 0) != "now." || isGone(disks.Path(dir, b)) {
		t.Error("uncommitted data is in place")
	}
	s := stage()
	ok(t, os.Rename(filepath.Join(dir, s.Folder, string(a)+".img"), disks.Path(dir, a))) // as if the process was killed during the swap
	swap(s)
	if read(t, disks.Path(dir, a), 0) != "then" || !isGone(disks.Path(dir, b)) {
		t.Error("committed data is not in place")
	}
	ok(t, os.WriteFile(disks.Path(dir, b), []byte("new."), 0o600))
	swap(s)
	if isGone(disks.Path(dir, b)) {
		t.Error("the second swap removed a disk that was created after the load")
	}
	refused := errors.New("refused")
	fail := func(result cloudsim.StagedData, want int) {
		t.Helper()
		if err := f.Swap(func() (cloudsim.StagedData, error) { return result, refused }); !errors.Is(err, refused) {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) != want {
			t.Errorf("folders of staged data: got %v, want %d", left, want)
		}
	}
	fail(stage(), 0)
	stage()
	fail(cloudsim.StagedData{}, 1) // the result is empty, so Swap keeps the staged data: the store may already contain the new records
}
