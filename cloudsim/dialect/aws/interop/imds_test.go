package interop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect/aws"
	"github.com/cloudsim-dev/allinone/cloudsim/metadata"
)

// metadataOf starts the metadata service of an instance, and returns the URL of the service.
func (w *world) metadataOf(t *testing.T, i cloudsim.InstanceID) string {
	t.Helper()
	admin := *w.cloud
	admin.Project = ""
	must(admin.SetMetadataTree(t.Context(), aws.Name, cloudsim.SetMetadataTree{MetadataTreeSpec: *aws.New().Metadata}))(t)
	ln := must(metadata.Listen(t.Context(), "127.0.0.1:0"))(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- metadata.Run(ctx, slog.New(slog.DiscardHandler), metadata.Config{Listener: ln, Instance: i}, w.cloud)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + ln.Addr().String()
}

// TestMetadata reads the metadata of an instance with the SDK's client, which uses IMDSv2. It
// proves that the metadata service and the dialect return the same values. It also proves that the
// client can read each path in the directory lists of the metadata service. It also proves that a
// request succeeds if it is signed with the credentials of the instance.
func TestMetadata(t *testing.T) {
	w, ctx := start(t), t.Context()
	w.instance(t, "node-0", "sim-1a", nil)
	must(w.cloud.CreateServiceAccount(ctx, cloudsim.CreateServiceAccount{Name: "node"}))(t)
	i := must(w.cloud.CreateInstance(ctx, cloudsim.CreateInstance{Name: "node-1", Zone: "sim-1b", Type: "small", ServiceAccount: "node", Labels: map[string]string{"dialect.cloudsim.dev/image": "ami-0"}}))(t)
	url := w.metadataOf(t, i.ID)
	c := imds.New(imds.Options{Endpoint: url, EnableFallback: sdk.FalseTernary})
	get := func(path string) string {
		t.Helper()
		out := must(c.GetMetadata(ctx, &imds.GetMetadataInput{Path: path}))(t)
		return string(must(io.ReadAll(out.Content))(t))
	}
	mac := cloudsim.MAC(netip.MustParseAddr(i.InternalIP())).String()
	for path, want := range map[string]string{
		"ami-id": "ami-0", "instance-id": "i-00000000000000002", "instance-type": "small", "local-ipv4": i.InternalIP(), "local-hostname": "node-1", "hostname": "node-1", "mac": mac,
		"placement/availability-zone": "sim-1b", "placement/region": "sim-1", "placement/": "availability-zone\navailability-zone-id\nregion",
		"network/interfaces/macs/": mac + "/", "network/interfaces/macs/" + mac + "/vpc-id": "vpc-00000000000000001",
		"network/interfaces/macs/" + mac + "/owner-id": "000000000001", "iam/security-credentials/": string(i.ServiceAccount),
	} {
		if got := get(path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	var walk func(dir string)
	walk = func(dir string) {
		for child := range strings.SplitSeq(get(dir), "\n") {
			if strings.HasSuffix(child, "/") {
				walk(dir + child)
			} else if dir+child != "public-ipv4" { // the instance has no public address
				get(dir + child)
			}
		}
	}
	walk("")
	doc := must(c.GetInstanceIdentityDocument(ctx, &imds.GetInstanceIdentityDocumentInput{}))(t)
	if doc.InstanceID != "i-00000000000000002" || doc.AccountID != "000000000001" || doc.AvailabilityZone != "sim-1b" || doc.Region != "sim-1" || doc.PrivateIP != i.InternalIP() || doc.InstanceType != "small" || doc.ImageID != "ami-0" {
		t.Errorf("identity document: got %+v", doc)
	}
	same := must(w.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{doc.InstanceID}}))(t).Reservations[0].Instances[0]
	if *same.NetworkInterfaces[0].MacAddress != mac || *same.ImageId != doc.ImageID || *same.PrivateIpAddress != doc.PrivateIP {
		t.Errorf("the same instance in EC2: got %+v", same)
	}
	if got := must(c.GetRegion(ctx, &imds.GetRegionInput{}))(t); got.Region != "sim-1" {
		t.Errorf("region: got %+v", got)
	}
	var status interface{ HTTPStatusCode() int }
	if _, err := c.GetMetadata(ctx, &imds.GetMetadataInput{Path: "kernel-id"}); !errors.As(err, &status) || status.HTTPStatusCode() != http.StatusNotFound {
		t.Errorf("unknown path: got error %v, want 404", err)
	}
	resp := must(http.Get(url + "/latest/meta-data/instance-id"))(t)
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("request without a session: got %d, error %v; want 401", resp.StatusCode, err)
	}

	cfg := w.cfg.Copy()
	cfg.Credentials = sdk.NewCredentialsCache(ec2rolecreds.New(func(o *ec2rolecreds.Options) { o.Client = c }))
	me := must(sts.NewFromConfig(cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{}))(t)
	if *me.UserId != string(i.ServiceAccount) || *me.Arn != "arn:aws:iam::000000000001:user/node" {
		t.Errorf("caller with the credentials of the instance: got %s, %s", *me.UserId, *me.Arn)
	}
	creds := must(cfg.Credentials.Retrieve(ctx))(t)
	for name, change := range map[string]func(*sdk.Credentials){
		"no session token":      func(c *sdk.Credentials) { c.SessionToken = "" },
		"altered session token": func(c *sdk.Credentials) { c.SessionToken = fmt.Sprintf("%sA", c.SessionToken) },
	} {
		wrong := creds
		change(&wrong)
		cfg.Credentials = sdk.CredentialsProviderFunc(func(context.Context) (sdk.Credentials, error) { return wrong, nil })
		_, err := sts.NewFromConfig(cfg).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
		t.Run(name, func(t *testing.T) { mustFail(t, err, "InvalidClientTokenId") })
	}
}
