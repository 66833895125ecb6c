package aws_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/cloudtest"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func withTwoRegions() cloudtest.Option {
	return cloudtest.WithConfig(func(c *engine.Config) {
		c.Catalogue.Regions = append(c.Catalogue.Regions, cloudsim.Region{Meta: cloudsim.Meta{Name: "sim-2"}})
		c.Catalogue.Zones = append(c.Catalogue.Zones, cloudsim.Zone{Meta: cloudsim.Meta{Name: "sim-2a"}, Region: "sim-2"})
	})
}

// TestClientTokenOrder proves that a repeated request finds the resource of the first request even
// if the order of the tags in the two requests differs. The EBS CSI driver reads the tags from a
// map, so their order is random.
func TestClientTokenOrder(t *testing.T) {
	w := start(t)
	const a, b = "Key=a&TagSpecification.1.Tag.N.Value=1", "Key=b&TagSpecification.1.Tag.N.Value=2"
	tags := func(kind string, all ...string) string {
		out := "&ClientToken=x&TagSpecification.1.ResourceType=" + kind
		for n, one := range all {
			out += strings.ReplaceAll("&TagSpecification.1.Tag.N."+one, "N", string(rune('1'+n)))
		}
		return out
	}
	for kind, call := range map[string]string{"volume": createVolume + "&Size=10", "instance": runOne} {
		for _, order := range [][]string{{a, b}, {b, a}} {
			w.succeed(t, "sim-1", call+tags(kind, order...))
		}
		if status, code, body := w.query(t, "sim-1", call+tags(kind, a)); status != http.StatusBadRequest || code != "IdempotentParameterMismatch" {
			t.Errorf("%s with fewer tags: got %d %s, want IdempotentParameterMismatch", kind, status, body)
		}
	}
	instances, err := w.cloud.ListInstances(t.Context(), cloudsim.ListOptions{})
	if err != nil || len(instances.Items) != 1 {
		t.Errorf("got %d instances, error %v; want 1", len(instances.Items), err)
	}
	disks, err := w.cloud.ListDisks(t.Context(), cloudsim.ListOptions{})
	if err != nil || len(disks.Items) != 1 {
		t.Errorf("got %d disks, error %v; want 1", len(disks.Items), err)
	}
}

// TestClientTokenRegions proves that the same request in another region creates another resource,
// as in EC2.
func TestClientTokenRegions(t *testing.T) {
	w := start(t, withTwoRegions())
	for _, region := range []string{"sim-1", "sim-2"} {
		if body := w.succeed(t, region, runOne+"&ClientToken=x"); !strings.Contains(body, "<availabilityZone>"+region+"a<") {
			t.Errorf("instance in %s: got %s", region, body)
		}
		w.succeed(t, region, "Action=CreateVolume&Size=10&ClientToken=x&AvailabilityZone="+region+"a")
	}
}

// TestRepeatedRequestID sends each request twice with the same header X-Request-Id, but without a
// ClientToken. It proves that the second request does not return the resource of the first request.
func TestRepeatedRequestID(t *testing.T) {
	w := start(t)
	repeat := func(query string) (code string) {
		t.Helper()
		for range 2 {
			form, err := url.ParseQuery(query)
			if err != nil {
				t.Fatal(err)
			}
			r := w.request(t, time.Now(), form)
			r.Header.Set("X-Request-Id", "my-id")
			_, code, _ = do(t, r)
		}
		return code
	}
	for _, query := range []string{runOne, createVolume + "&Size=10", "Action=CreateSnapshot&VolumeId=vol-00000000000000001"} {
		if code := repeat(query); code != "" {
			t.Errorf("second request %s: got error %s", query, code)
		}
	}
	if code := repeat("Action=CreateSecurityGroup&GroupName=a&GroupDescription=a"); code != "InvalidGroup.Duplicate" {
		t.Errorf("second request for a security group: got error %q, want InvalidGroup.Duplicate", code)
	}
	for _, want := range []string{"", "RepositoryAlreadyExistsException"} {
		r := w.ecr(t, "CreateRepository", `{"repositoryName":"a"}`)
		r.Header.Set("X-Request-Id", "my-id")
		if _, code, body := doJSON(t, r); code != want {
			t.Errorf("repository: got %s, want error %q", body, want)
		}
	}
	i, err1 := w.cloud.ListInstances(t.Context(), cloudsim.ListOptions{})
	d, err2 := w.cloud.ListDisks(t.Context(), cloudsim.ListOptions{})
	s, err3 := w.cloud.ListSnapshots(t.Context(), cloudsim.ListOptions{})
	if err := errors.Join(err1, err2, err3); err != nil || len(i.Items) != 2 || len(d.Items) != 2 || len(s.Items) != 2 {
		t.Errorf("got %d instances, %d disks and %d snapshots, error %v; want 2 of each", len(i.Items), len(d.Items), len(s.Items), err)
	}
}

// TestClientTokenKeepsInstances proves that a repeated call of RunInstances keeps the instances of
// the first call if the repeated call fails. RunInstances terminates only the instances that the
// failed call itself has created.
func TestClientTokenKeepsInstances(t *testing.T) {
	w := start(t)
	const run = runInstances + "&MinCount=2&MaxCount=2&ClientToken=x"
	w.succeed(t, "sim-1", run)
	if _, err := w.cloud.DeleteInstance(t.Context(), "i-000002"); err != nil {
		t.Fatal(err)
	}
	w.breakCall(t, "instances.create", cloudsim.FaultQuota)
	if status, code, body := w.query(t, "sim-1", run); code != "InstanceLimitExceeded" {
		t.Errorf("got %d %s, want InstanceLimitExceeded", status, body)
	}
	if i, err := w.cloud.GetInstance(t.Context(), "i-000001"); err != nil || i.State != cloudsim.InstanceRunning {
		t.Errorf("first instance: got %+v, error %v; want state running", i, err)
	}
}

// TestTagsOfOtherRegion proves that a request cannot change the tags of a resource in another
// region.
func TestTagsOfOtherRegion(t *testing.T) {
	w := start(t, withTwoRegions())
	w.succeed(t, "sim-1", runOne)
	w.succeed(t, "sim-1", createVolume+"&Size=10")
	for id, want := range map[string]string{"i-00000000000000001": "InvalidInstanceID.NotFound", "vol-00000000000000001": "InvalidVolume.NotFound"} {
		for _, action := range []string{"CreateTags", "DeleteTags"} {
			query := "Action=" + action + "&Tag.1.Key=a&Tag.1.Value=b&ResourceId.1=" + id
			if status, code, body := w.query(t, "sim-2", query); code != want {
				t.Errorf("%s of %s in another region: got %d %s, want %s", action, id, status, body, want)
			}
			w.succeed(t, "sim-1", query)
		}
	}
}

// TestFailedLaunchWithoutClientToken launches two instances. The cloud creates the first instance,
// but the creation of the second instance fails with an error of the server. If the request has a
// ClientToken, the first instance must stay. Otherwise the dialect must terminate this instance,
// because a repeated request could not find it.
func TestFailedLaunchWithoutClientToken(t *testing.T) {
	for token, want := range map[string]cloudsim.InstanceState{"": cloudsim.InstanceTerminating, "&ClientToken=x": cloudsim.InstanceRunning} {
		w := start(t)
		w.breakCall(t, "instances.delete", cloudsim.FaultStuckState) // keeps the terminated instance in the list
		w.breakCalls(t, "instances.create", cloudsim.FaultWhen{Skip: 1}, cloudsim.FaultEffect{Type: cloudsim.FaultError})
		if status, _, body := w.query(t, "sim-1", runInstances+"&MinCount=2&MaxCount=2"+token); status < http.StatusInternalServerError {
			t.Errorf("launch with %q: got %d %s, want an error of the server", token, status, body)
		}
		l, err := w.cloud.ListInstances(t.Context(), cloudsim.ListOptions{})
		if err != nil || len(l.Items) != 1 || l.Items[0].State != want {
			t.Errorf("instances after a launch with %q: got %+v, error %v; want one instance in the state %s", token, l.Items, err, want)
		}
	}
}
