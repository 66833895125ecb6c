package lab

import (
	"strings"
	"testing"
)

// TestVolumesWithoutDefinitions proves that an empty folder of CustomResourceDefinitions causes an
// error that names the folder and the command that fills it.
func TestVolumesWithoutDefinitions(t *testing.T) {
	dir := t.TempDir()
	err := installVolumeAddons(t.Context(), nil, dir, nil)
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "make csi") {
		t.Errorf("got error %v, want an error with %s and make csi", err, dir)
	}
}
