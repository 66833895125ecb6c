package cloudsim

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// TestResourceKinds proves that the function ResourceKinds returns each
// constant of type ResourceKind exactly once.
func TestResourceKinds(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var all []ResourceKind
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`Kind\w+ +ResourceKind = "(\w+)"`).FindAllSubmatch(raw, -1) {
			all = append(all, ResourceKind(m[1]))
		}
	}
	listed := ResourceKinds()
	slices.Sort(all)
	slices.Sort(listed)
	if !slices.Equal(all, listed) {
		t.Errorf("ResourceKinds: got %v, want the kinds of the package: %v", listed, all)
	}
}
