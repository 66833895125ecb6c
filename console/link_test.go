package console_test

import (
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/console"
)

// TestLinkOfClientOnSocket proves that a client that calls the cloud over a Unix socket can request
// a link from a console at an HTTP URL.
func TestLinkOfClientOnSocket(t *testing.T) {
	t.Parallel()
	cloud := cloudtest.Start(t, cloudtest.OnSocket())
	url := start(t, cloud, nil)
	link, err := console.RequestLink(t.Context(), cloud, url, console.CreateLink{})
	if err != nil || !strings.HasPrefix(link, url+"/console/#c=") {
		t.Errorf("got the link %q, %v", link, err)
	}
}
