package cloudsim_test

import (
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

func TestStatusIsTotal(t *testing.T) {
	for _, k := range cloudsim.Kinds() {
		if k.HTTPStatus() == 0 {
			t.Errorf("%v has no HTTP status", k)
		}
	}
}
