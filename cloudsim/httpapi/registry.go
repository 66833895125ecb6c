package httpapi

import (
	"context"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func (a *api) registryRoutes() {
	e := a.engine
	handle(a, op{id: "repositories.create", method: post, path: "/v1/repositories", summary: "Create a repository for images", status: http.StatusCreated, access: engine.Write, idemKey: true},
		func(ctx context.Context, in *create[cloudsim.CreateRepository]) (*body[cloudsim.Repository], error) {
			v, err := e.CreateRepository(ctx, in.Body)
			return answer(v, v.Revision, err)
		})
	lists(a, "repositories", "/v1/repositories", "repositories", engine.Read, e.ListRepositories)
	gets(a, "repositories", "/v1/repositories/{id}", "a repository", engine.Read, e.GetRepository, revOf[cloudsim.Repository])
	deletes(a, "repositories", "/v1/repositories/{id}", "Delete a repository and its images", engine.Write, e.DeleteRepository)

	handle(a, op{id: "registry.credential", method: post, path: "/v1/registry/credentials", summary: "Create a registry password for the caller, valid for at most an hour", access: engine.Enter},
		func(ctx context.Context, in *create[cloudsim.CreateRegistryCredential]) (*struct{ Body cloudsim.RegistryCredential }, error) {
			return withoutETag(e.CreateRegistryCredential(ctx, in.Body))
		})
	handle(a, op{id: "registry.decisions", method: http.MethodGet, path: "/v1/registry/decisions", summary: "List recent decisions of the registry, with reasons", access: engine.Admin},
		func(ctx context.Context, _ *none) (*listed[cloudsim.RegistryDecision], error) {
			l, err := e.ListRegistryDecisions(ctx)
			return &listed[cloudsim.RegistryDecision]{l}, err
		})
	for op, about := range map[string]string{
		cloudsim.RegistryToken: "Exchange a password for a bearer token", cloudsim.RegistryChallenge: "Send a client to the token endpoint",
		cloudsim.RegistryPull: "Pull from the registry", cloudsim.RegistryPush: "Push to the registry",
		cloudsim.RegistryDelete: "Delete from the registry", cloudsim.RegistryCatalog: "List the repositories of the registry",
	} {
		a.targets = append(a.targets, cloudsim.FaultTarget{Operation: op, Summary: about})
		a.ids = append(a.ids, op)
	}
}
