package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// project is where a lab's instances and load balancers are.
const project = "default"

// cloudClient is the cloud as its administrator.
func (p *plan) cloudClient() *client.Client {
	return &client.Client{
		URL: p.ports.url("http", "cloudsim"), HTTP: &http.Client{Timeout: 10 * time.Second},
		Token: fileToken(p.dir.AdminToken()), Project: project, UserAgent: "allinone-up",
	}
}

// fileToken reads the secret each time: it may have been replaced.
func fileToken(path string) client.TokenSource {
	return func() (string, error) {
		b, err := os.ReadFile(path)
		return string(bytes.TrimSpace(b)), err
	}
}

// ccmToken is the file with the cloud controller manager's token.
func (d Dir) ccmToken() string { return d.path("cloud", "ccm.token") }

// seed makes what a lab needs in its cloud: each time, the cloud controller
// manager's token; the first time, the instances. Creating an instance is
// idempotent by name, so an interrupted seed is repeated.
func (p *plan) seed(ctx context.Context) error {
	c := p.cloudClient()
	if err := ensureToken(ctx, c, "ccm", p.dir.ccmToken()); err != nil {
		return fmt.Errorf("token of the cloud controller manager: %w", err)
	}
	m, err := p.dir.memory()
	if err != nil || m.Seeded {
		return err
	}
	for _, r := range firstInstances(p.Instances) {
		if _, err := c.CreateInstance(ctx, r); err != nil {
			return fmt.Errorf("instance %s: %w", r.Name, err)
		}
	}
	m.Seeded = true
	return p.dir.remember(m)
}

// firstInstances are spread over the zones of the cloud's default region.
func firstInstances(n int) []cloudsim.CreateInstance {
	catalogue := cloudsim.DefaultCatalogue()
	zones, small := catalogue.Zones, catalogue.InstanceTypes[0].Name
	all := make([]cloudsim.CreateInstance, n)
	for i := range all {
		all[i] = cloudsim.CreateInstance{Name: fmt.Sprintf("node-%d", i+1), Zone: zones[i%len(zones)].Name, Type: small}
	}
	return all
}

// ensureToken makes sure that file holds a token of that name which the cloud
// takes. The cloud shows a secret once: if the file is lost, or was not yet
// written when we died, the token is replaced.
func ensureToken(ctx context.Context, c *client.Client, name, file string) error {
	as := *c
	as.Token = fileToken(file)
	as.Project = ""
	_, err := as.ListInstances(ctx, cloudsim.ListOptions{Limit: 1})
	if err == nil {
		return nil
	}
	if !errors.Is(err, cloudsim.Unauthenticated) {
		return err
	}
	old, _, err := client.All(ctx, c.ListTokens, cloudsim.ListOptions{Name: name})
	if err != nil {
		return err
	}
	for _, t := range old {
		if err := c.DeleteToken(ctx, t.ID); err != nil && !errors.Is(err, cloudsim.NotFound) {
			return err
		}
	}
	t, err := c.CreateToken(ctx, cloudsim.CreateToken{Name: name, Role: cloudsim.RoleEditor})
	if err != nil {
		return err
	}
	return writeFile(file, []byte(t.Secret+"\n"))
}
