package httpapi

import (
	"context"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
)

func (a *api) networkRoutes() {
	e := a.engine
	handle(a, op{id: "networks.create", method: post, path: "/v1/networks", summary: "Create a network", status: http.StatusCreated, access: engine.Write, idemKey: true}, a.createNetwork)
	lists(a, "networks", "/v1/networks", "networks", engine.Read, e.ListNetworks)
	gets(a, "networks", "/v1/networks/{id}", "a network", engine.Read, e.GetNetwork, revOf[cloudsim.Network])
	handle(a, op{id: "networks.update", method: http.MethodPut, path: "/v1/networks/{id}", summary: "Replace a network's labels, pod ranges and maximum number of routes", status: http.StatusAccepted, access: engine.Write}, a.updateNetwork)
	act(a, "networks.delete", http.MethodDelete, "/v1/networks/{id}", "Begin to delete an empty network", e.DeleteNetwork)

	handle(a, op{id: "subnets.create", method: post, path: "/v1/subnets", summary: "Create a subnet", status: http.StatusCreated, access: engine.Write, idemKey: true}, a.createSubnet)
	lists(a, "subnets", "/v1/subnets", "subnets", engine.Read, e.ListSubnets)
	gets(a, "subnets", "/v1/subnets/{id}", "a subnet", engine.Read, e.GetSubnet, revOf[cloudsim.Subnet])
	act(a, "subnets.delete", http.MethodDelete, "/v1/subnets/{id}", "Begin to delete a subnet without instances", e.DeleteSubnet)
}

func (a *api) createNetwork(ctx context.Context, in *create[cloudsim.CreateNetwork]) (*body[cloudsim.Network], error) {
	v, err := a.engine.CreateNetwork(ctx, in.Body)
	return answer(v, v.Revision, err)
}

func (a *api) updateNetwork(ctx context.Context, in *struct {
	ByID
	IfMatch string `header:"If-Match" doc:"ETag of the expected revision. The call fails if the resource has another revision"`
	Body    cloudsim.UpdateNetwork
}) (*body[cloudsim.Network], error) {
	rev, err := revision(in.IfMatch)
	if err != nil {
		return nil, err
	}
	v, err := a.engine.UpdateNetwork(ctx, cloudsim.NetworkID(in.ID), in.Body, rev)
	return answer(v, v.Revision, err)
}

func (a *api) createSubnet(ctx context.Context, in *create[cloudsim.CreateSubnet]) (*body[cloudsim.Subnet], error) {
	v, err := a.engine.CreateSubnet(ctx, in.Body)
	return answer(v, v.Revision, err)
}
