package providerid_test

import (
	"testing"

	"github.com/cloudsim-dev/allinone/internal/providerid"
)

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "cloudsim://sim-1/sim-1a/i-000001", "cloudsim:////", "aws:///us-east-1a/i-0abc", "cloudsim://a/b/c/d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := providerid.Parse(s); err == nil && id.String() != s {
			t.Errorf("Parse(%q): got %+v, whose String is %q; want the parsed text", s, id, id.String())
		}
	})
}
