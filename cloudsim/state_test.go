package cloudsim

import (
	"errors"
	"testing"
)

// What a list of data may say is what a saved state says: nothing in it is a
// path, or more than a state may hold.
func TestStateData(t *testing.T) {
	good := StateFile{ID: "disk-000001", SizeBytes: 1 << 40, Blocks: MaxStateData / StateBlock}
	if err := (StateData{[]StateFile{good, {ID: "snap-00000a", SizeBytes: 1 << 30}}}).Validate(); err != nil {
		t.Error(err)
	}
	for what, bad := range map[string][]StateFile{
		"a path":             {{ID: "../disk-000001"}},
		"another kind":       {{ID: "i-000001"}},
		"one twice":          {{ID: "disk-000001"}, {ID: "disk-000001"}},
		"a negative size":    {{ID: "disk-000001", SizeBytes: -StateBlock}},
		"half a block":       {{ID: "disk-000001", SizeBytes: StateBlock / 2}},
		"too large a disk":   {{ID: "disk-000001", SizeBytes: (MaxDiskGiB + 1) << 30}},
		"more than its size": {{ID: "disk-000001", SizeBytes: StateBlock, Blocks: 2}},
		"fewer than none":    {{ID: "disk-000001", SizeBytes: StateBlock, Blocks: -1}},
		"too much":           {good, {ID: "disk-000002", SizeBytes: StateBlock, Blocks: 1}},
	} {
		if err := (StateData{bad}).Validate(); !errors.Is(err, Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
