package interop

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecr/types"
)

const registryHost = "000000000001.dkr.ecr.sim-1.amazonaws.com"

// testECR makes the calls of ECR. It also proves that the password in an authorization token
// belongs to the caller.
func testECR(t *testing.T, w *world) {
	ctx := t.Context()
	got := must(w.ecr.GetAuthorizationToken(ctx, &ecr.GetAuthorizationTokenInput{}))(t)
	if len(got.AuthorizationData) != 1 {
		t.Fatalf("authorization data: got %+v", got.AuthorizationData)
	}
	d := got.AuthorizationData[0]
	if left := time.Until(*d.ExpiresAt); *d.ProxyEndpoint != "https://"+registryHost || left < 59*time.Minute || left > time.Hour {
		t.Errorf("authorization token: got endpoint %s and expiry %s", *d.ProxyEndpoint, d.ExpiresAt)
	}
	user, password, _ := strings.Cut(string(must(base64.StdEncoding.DecodeString(*d.AuthorizationToken))(t)), ":")
	caller := must((<-w.engine).AuthorizeRegistryPassword(password))(t)
	if user != "AWS" || caller.Name() != "aws" {
		t.Errorf("authorization token: got user %s and the password of the caller %s, want AWS and aws", user, caller.Name())
	}

	for _, name := range []string{"team-a/web", "team-a/api", "db"} {
		made := must(w.ecr.CreateRepository(ctx, &ecr.CreateRepositoryInput{RepositoryName: &name, Tags: []types.Tag{{Key: sdk.String("team"), Value: sdk.String("a")}}}))(t).Repository
		if *made.RepositoryUri != registryHost+"/"+name || *made.RepositoryArn != "arn:aws:ecr:sim-1:000000000001:repository/"+name || *made.RegistryId != "000000000001" || time.Since(*made.CreatedAt) > time.Minute {
			t.Errorf("repository: got %+v", made)
		}
	}
	_, err := w.ecr.CreateRepository(ctx, &ecr.CreateRepositoryInput{RepositoryName: sdk.String("db")})
	failsJSON(t, err, "RepositoryAlreadyExistsException")
	one := must(w.ecr.DescribeRepositories(ctx, &ecr.DescribeRepositoriesInput{RepositoryNames: []string{"db"}}))(t).Repositories
	if len(one) != 1 || *one[0].RepositoryName != "db" || one[0].ImageTagMutability != types.ImageTagMutabilityMutable {
		t.Errorf("repository by name: got %+v", one)
	}
	var names []string
	for p := ecr.NewDescribeRepositoriesPaginator(w.ecr, &ecr.DescribeRepositoriesInput{MaxResults: sdk.Int32(2)}); p.HasMorePages(); {
		for _, r := range must(p.NextPage(ctx))(t).Repositories {
			names = append(names, *r.RepositoryName)
		}
	}
	if !slices.Equal(names, []string{"team-a/web", "team-a/api", "db"}) {
		t.Errorf("repositories: got %v", names)
	}
	must(w.ecr.DeleteRepository(ctx, &ecr.DeleteRepositoryInput{RepositoryName: sdk.String("db"), Force: true}))(t)
	_, err = w.ecr.DescribeRepositories(ctx, &ecr.DescribeRepositoriesInput{RepositoryNames: []string{"db"}})
	failsJSON(t, err, "RepositoryNotFoundException")
	_, err = w.ecr.ListImages(ctx, &ecr.ListImagesInput{RepositoryName: sdk.String("team-a/web")})
	failsJSON(t, err, "UnknownOperationException")
}
