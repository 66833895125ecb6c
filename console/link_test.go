package console_test

import (
	"strings"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/console"
)

// TestLinkOfClientOnSocket calls RequestLink with a client of a cloud on a Unix socket. The link
// begins with the HTTP URL of the console.
func TestLinkOfClientOnSocket(t *testing.T) {
	t.Parallel()
	cloud := cloudtest.Start(t, cloudtest.OnSocket())
	url := start(t, cloud, nil)
	link, err := console.RequestLink(t.Context(), cloud, url, console.CreateLink{})
	if err != nil || !strings.HasPrefix(link, url+"/console/#c=") {
		t.Errorf("got the link %q, %v", link, err)
	}
}
