package aws

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/http"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// ecr is the service Amazon Elastic Container Registry (ECR), API version 2015-09-21.
var ecr = service{name: "ecr", signing: "ecr"}

// ecrUser is the user name in authorization tokens of ECR.
const ecrUser = "AWS"

// RegistryHost returns the host name of a project's registry in ECR. In this cloud, the host names
// of all projects and regions belong to one registry.
func RegistryHost(p cloudsim.ProjectID, region string) string {
	return accountOf(p) + ".dkr.ecr." + region + ".amazonaws.com"
}

func ecrCalls() []dialect.Call {
	call := func(name, summary string, do func(*dialect.Request) (int, any, error)) dialect.Call {
		return dialect.Call{Name: "ecr." + name, Method: http.MethodPost, Path: "/", Summary: summary, Do: do}
	}
	return []dialect.Call{
		call("CreateRepository", "Create a repository of the registry", jsonCall(createRepository)),
		call("DeleteRepository", "Delete a repository and its images", jsonCall(deleteRepository)),
		call("DescribeRepositories", "List the repositories of the registry", jsonCall(describeRepositories)),
		call("GetAuthorizationToken", "Create a password for the registry", jsonCall(getAuthorizationToken)),
	}
}

// unixSeconds returns a time in the format of the protocol JSON 1.1, which is the number of seconds
// since 1970.
func unixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// checkRegistry returns an error if the parameter id is not the AWS account of the caller's
// project. An empty id is valid.
func checkRegistry(me cloudsim.Identity, id string) error {
	if own := accountOf(me.Project); id != "" && id != own {
		return coded(http.StatusBadRequest, "InvalidParameterException", "the registry "+clip(id)+" is not the registry of this account: use "+own)
	}
	return nil
}

type getAuthorizationTokenInput struct {
	RegistryIDs []string `json:"registryIds"`
}

type authorizationData struct {
	Token     string  `json:"authorizationToken"`
	ExpiresAt float64 `json:"expiresAt"`
	Endpoint  string  `json:"proxyEndpoint"`
}

// getAuthorizationToken creates a password for the registry and returns it in the format of Basic
// authentication. A client with this password has the roles of the caller.
func getAuthorizationToken(r *dialect.Request, me cloudsim.Identity, input getAuthorizationTokenInput) (any, error) {
	for _, id := range input.RegistryIDs {
		if err := checkRegistry(me, id); err != nil {
			return nil, err
		}
	}
	c, err := r.Cloud.CreateRegistryCredential(r.Context(), cloudsim.CreateRegistryCredential{})
	if err != nil {
		return nil, err
	}
	return struct {
		Data []authorizationData `json:"authorizationData"`
	}{[]authorizationData{{
		Token:     base64.StdEncoding.EncodeToString([]byte(ecrUser + ":" + c.Password)),
		ExpiresAt: unixSeconds(c.ExpiresAt),
		Endpoint:  "https://" + RegistryHost(me.Project, regionOf(r.Header)),
	}}}, nil
}

type repository struct {
	ARN        string  `json:"repositoryArn"`
	RegistryID string  `json:"registryId"`
	Name       string  `json:"repositoryName"`
	URI        string  `json:"repositoryUri"`
	CreatedAt  float64 `json:"createdAt"`
	Mutability string  `json:"imageTagMutability"`
}

func repositoryOf(r *dialect.Request, own cloudsim.Repository) repository {
	region, id := regionOf(r.Header), accountOf(own.Project)
	return repository{
		ARN: "arn:aws:ecr:" + region + ":" + id + ":repository/" + own.Name, RegistryID: id, Name: own.Name, URI: RegistryHost(own.Project, region) + "/" + own.Name,
		CreatedAt: unixSeconds(own.CreatedAt), Mutability: mutable,
	}
}

// mutable is the value of imageTagMutability for a repository in which a push can move a tag to
// another image. All repositories of this cloud have this value.
const mutable = "MUTABLE"

type repositoryAnswer struct {
	Repository repository `json:"repository"`
}

type createRepositoryInput struct {
	Name       string `json:"repositoryName"`
	RegistryID string `json:"registryId"`
	Mutability string `json:"imageTagMutability"`
	Tags       []struct {
		Key   string
		Value string
	} `json:"tags"`
}

// createRepository creates a repository. If the repository already exists, createRepository returns
// an error, as ECR does. But if a request has the same labels as the existing repository, the cloud
// returns this repository. To prevent this, createRepository adds the label labelUnique. So the
// labels of two requests differ.
func createRepository(r *dialect.Request, me cloudsim.Identity, input createRepositoryInput) (any, error) {
	if err := checkRegistry(me, input.RegistryID); err != nil {
		return nil, err
	}
	if input.Mutability != "" && input.Mutability != mutable {
		return nil, coded(http.StatusBadRequest, "InvalidParameterException", "the field imageTagMutability must be "+mutable+", because image tags of this cloud are always mutable, got "+clip(input.Mutability))
	}
	given := map[string]string{}
	for _, t := range input.Tags {
		given[t.Key] = t.Value
	}
	labels, err := dialect.WithLabels(given, map[string]string{labelUnique: rand.Text()})
	if err != nil {
		return nil, err
	}
	own, err := r.Cloud.CreateRepository(r.Context(), cloudsim.CreateRepository{Name: input.Name, Labels: labels})
	if errors.Is(err, cloudsim.Exists) {
		err = coded(http.StatusBadRequest, "RepositoryAlreadyExistsException", err.Error())
	}
	return repositoryAnswer{repositoryOf(r, own)}, err
}

func findRepository(r *dialect.Request, name string) (cloudsim.Repository, error) {
	if name == "" {
		return cloudsim.Repository{}, coded(http.StatusBadRequest, "InvalidParameterException", "the field repositoryName must not be empty")
	}
	l, err := r.Cloud.ListRepositories(r.Context(), cloudsim.ListOptions{Name: name})
	if err != nil {
		return cloudsim.Repository{}, err
	}
	if len(l.Items) == 0 {
		return cloudsim.Repository{}, coded(http.StatusBadRequest, "RepositoryNotFoundException", "the repository "+clip(name)+" does not exist in the registry of this account")
	}
	return l.Items[0], nil
}

type deleteRepositoryInput struct {
	Name       string `json:"repositoryName"`
	RegistryID string `json:"registryId"`
	Force      bool   `json:"force"`
}

// deleteRepository deletes a repository and its images. Without the field force, ECR deletes only
// an empty repository. But the cloud's API does not report whether a repository contains images. So
// deleteRepository refuses a request without force.
func deleteRepository(r *dialect.Request, me cloudsim.Identity, input deleteRepositoryInput) (any, error) {
	if err := checkRegistry(me, input.RegistryID); err != nil {
		return nil, err
	}
	if !input.Force {
		return nil, coded(http.StatusBadRequest, "InvalidParameterException", "the field force must be true, because this cloud deletes a repository together with its images")
	}
	own, err := findRepository(r, input.Name)
	if err != nil {
		return nil, err
	}
	return repositoryAnswer{repositoryOf(r, own)}, r.Cloud.DeleteRepository(r.Context(), own.ID)
}

type describeRepositoriesInput struct {
	RegistryID string   `json:"registryId"`
	Names      []string `json:"repositoryNames"`
	MaxResults *int     `json:"maxResults"`
	NextToken  string   `json:"nextToken"`
}

type describeRepositoriesAnswer struct {
	Repositories []repository `json:"repositories"`
	Next         string       `json:"nextToken,omitempty"`
}

// maxRepositoryNames is the largest number of names in one call of DescribeRepositories, and the
// default size of a page. ECR uses the same number for both.
const maxRepositoryNames = 100

func describeRepositories(r *dialect.Request, me cloudsim.Identity, input describeRepositoriesInput) (any, error) {
	if err := checkRegistry(me, input.RegistryID); err != nil {
		return nil, err
	}
	out := describeRepositoriesAnswer{Repositories: []repository{}}
	if len(input.Names) > 0 {
		if input.MaxResults != nil || input.NextToken != "" || len(input.Names) > maxRepositoryNames {
			return nil, coded(http.StatusBadRequest, "InvalidParameterException", "the field repositoryNames must have at most 100 names, and cannot be used with maxResults and nextToken")
		}
		for _, name := range input.Names {
			own, err := findRepository(r, name)
			if err != nil {
				return nil, err
			}
			out.Repositories = append(out.Repositories, repositoryOf(r, own))
		}
		return out, nil
	}
	o := cloudsim.ListOptions{Limit: maxRepositoryNames}
	if input.MaxResults != nil {
		if o.Limit = *input.MaxResults; o.Limit < 1 || o.Limit > maxList {
			return nil, coded(http.StatusBadRequest, "InvalidParameterException", "the field maxResults must be 1 to 1000")
		}
	}
	var ok bool
	if o.After, ok = parseNextToken(input.NextToken); !ok {
		return nil, coded(http.StatusBadRequest, "InvalidParameterException", "the field nextToken must be the token of the previous page, got "+clip(input.NextToken))
	}
	l, err := r.Cloud.ListRepositories(r.Context(), o)
	if err != nil {
		return nil, err
	}
	for _, own := range l.Items {
		out.Repositories = append(out.Repositories, repositoryOf(r, own))
	}
	if l.Next != "" {
		out.Next = nextToken(l.Next)
	}
	return out, nil
}
