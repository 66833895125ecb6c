package hcloud

import (
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// calls returns all calls that the dialect supports. In the test TestEachCall, each of these calls
// must succeed at least once.
func (a *api) calls() []dialect.Call {
	var all []dialect.Call
	add := func(name, method, path, summary string, fn call) {
		all = append(all, dialect.Call{Name: name, Method: method, Path: "/v1" + path, Summary: summary, Do: fn})
	}
	const get, post, put, del = "GET", "POST", "PUT", "DELETE"

	add("actions.list", get, "/actions", "List actions by their ids", a.listActions)
	add("actions.get", get, "/actions/{id}", "Get an action", a.getAction)

	addCatalogue(add, "locations", "location", locations)
	addCatalogue(add, "datacenters", "datacenter", listDatacenters)
	addCatalogue(add, "server_types", "server type", serverTypes)
	addCatalogue(add, "load_balancer_types", "load balancer type", pricedLoadBalancerTypes)
	addCatalogue(add, "images", "image", filteredImages)
	add("pricing.get", get, "/pricing", "Get all prices, which are 0", getPricing)

	add("servers.list", get, "/servers", "List servers", listCall(a, "servers", (*client.Client).ListInstances, filterBy("status", statusOfServer), a.serversOf))
	add("servers.get", get, "/servers/{id}", "Get a server", a.getServer)
	add("servers.create", post, "/servers", "Create a server", a.createServer)
	add("servers.update", put, "/servers/{id}", "Change the labels of a server", a.updateServer)
	add("servers.delete", del, "/servers/{id}", "Delete a server", a.deleteServer)
	add("servers.poweron", post, "/servers/{id}/actions/poweron", "Start a server", powerCall("start_server", cloudsim.InstanceRunning, (*client.Client).StartInstance))
	add("servers.poweroff", post, "/servers/{id}/actions/poweroff", "Stop a server", powerCall("stop_server", cloudsim.InstanceStopped, (*client.Client).StopInstance))
	add("servers.shutdown", post, "/servers/{id}/actions/shutdown", "Stop a server", powerCall("shutdown_server", cloudsim.InstanceStopped, (*client.Client).StopInstance))
	add("servers.reboot", post, "/servers/{id}/actions/reboot", "Reboot a server", powerCall("reboot_server", "", (*client.Client).RebootInstance))
	add("servers.reset", post, "/servers/{id}/actions/reset", "Reboot a server", powerCall("reset_server", "", (*client.Client).RebootInstance))

	add("servers.add_to_placement_group", post, "/servers/{id}/actions/add_to_placement_group", "Add a stopped server to a placement group", serverCall("add_to_placement_group", addToPlacementGroup))
	add("servers.remove_from_placement_group", post, "/servers/{id}/actions/remove_from_placement_group", "Remove a server from its placement group", serverCall("remove_from_placement_group", removeFromPlacementGroup))
	add("servers.attach_to_network", post, "/servers/{id}/actions/attach_to_network", "Attach a server to a network", serverNetworkCall("attach_to_network", attachServerToNetwork))
	add("servers.detach_from_network", post, "/servers/{id}/actions/detach_from_network", "Detach a server from a network", serverNetworkCall("detach_from_network", detachServerFromNetwork))
	add("servers.change_protection", post, "/servers/{id}/actions/change_protection", "Set the deletion protection of a server", serverCall("change_protection", protectServer))

	add("placement_groups.list", get, "/placement_groups", "List placement groups", listCall(a, "placement_groups", placementGroups.list, filterBy("type", typeOfPlacementGroup), placementGroups.show))
	add("placement_groups.get", get, "/placement_groups/{id}", "Get a placement group", placementGroups.get)
	add("placement_groups.create", post, "/placement_groups", "Create a placement group", createPlacementGroup)
	add("placement_groups.update", put, "/placement_groups/{id}", "Change the name and the labels of a placement group", placementGroups.update)
	add("placement_groups.delete", del, "/placement_groups/{id}", "Delete a placement group without servers", deletePlacementGroup)

	add("ssh_keys.list", get, "/ssh_keys", "List SSH keys", listCall(a, "ssh_keys", sshKeys.list, filterBy("fingerprint", fingerprintOf), sshKeys.show))
	add("ssh_keys.get", get, "/ssh_keys/{id}", "Get an SSH key", sshKeys.get)
	add("ssh_keys.create", post, "/ssh_keys", "Create an SSH key", createSSHKey)
	add("ssh_keys.update", put, "/ssh_keys/{id}", "Change the name and the labels of an SSH key", sshKeys.update)
	add("ssh_keys.delete", del, "/ssh_keys/{id}", "Delete an SSH key", sshKeys.delete)

	add("volumes.list", get, "/volumes", "List volumes", listCall(a, "volumes", (*client.Client).ListDisks, filterBy("status", statusOfVolume), convertEach(volumeOf)))
	add("volumes.get", get, "/volumes/{id}", "Get a volume", a.getVolume)
	add("volumes.create", post, "/volumes", "Create a volume", a.createVolume)
	add("volumes.update", put, "/volumes/{id}", "Change the labels of a volume", updateVolume)
	add("volumes.delete", del, "/volumes/{id}", "Delete a volume", a.deleteVolume)
	add("volumes.attach", post, "/volumes/{id}/actions/attach", "Attach a volume to a server", volumeCall("attach_volume", attachVolume))
	add("volumes.detach", post, "/volumes/{id}/actions/detach", "Detach a volume from a server", volumeCall("detach_volume", detachVolume))
	add("volumes.change_protection", post, "/volumes/{id}/actions/change_protection", "Set the deletion protection of a volume", volumeCall("change_protection", protectVolume))
	add("volumes.resize", post, "/volumes/{id}/actions/resize", "Enlarge a volume", volumeCall("resize_volume", resizeVolume))

	add("networks.list", get, "/networks", "List networks", listCall(a, "networks", (*client.Client).ListNetworks, nil, networksWithParts))
	add("networks.get", get, "/networks/{id}", "Get a network", getNetwork)
	add("networks.create", post, "/networks", "Create a network", createNetwork)
	add("networks.update", put, "/networks/{id}", "Change the labels of a network", updateNetwork)
	add("networks.delete", del, "/networks/{id}", "Delete a network and its subnets", deleteNetwork)
	add("networks.add_subnet", post, "/networks/{id}/actions/add_subnet", "Add a subnet to a network", networkCall("add_subnet", addSubnet))
	add("networks.delete_subnet", post, "/networks/{id}/actions/delete_subnet", "Delete a subnet of a network", networkCall("delete_subnet", deleteSubnet))
	add("networks.add_route", post, "/networks/{id}/actions/add_route", "Add a route to a network", networkCall("add_route", addRoute))
	add("networks.delete_route", post, "/networks/{id}/actions/delete_route", "Delete a route of a network", networkCall("delete_route", deleteRoute))
	add("networks.change_protection", post, "/networks/{id}/actions/change_protection", "Set the deletion protection of a network", networkCall("change_protection", protectNetwork))

	add("load_balancers.list", get, "/load_balancers", "List load balancers", listCall(a, "load_balancers", (*client.Client).ListLoadBalancers, nil, convertEach(loadBalancerOf)))
	add("load_balancers.get", get, "/load_balancers/{id}", "Get a load balancer", a.getLoadBalancer)
	add("load_balancers.create", post, "/load_balancers", "Create a load balancer", a.createLoadBalancer)
	add("load_balancers.update", put, "/load_balancers/{id}", "Change the labels of a load balancer", a.updateLoadBalancer)
	add("load_balancers.delete", del, "/load_balancers/{id}", "Delete a load balancer", a.deleteLoadBalancer)
	actions := func(name, summary string, fn call) {
		add("load_balancers."+name, post, "/load_balancers/{id}/actions/"+name, summary, fn)
	}
	actions("add_service", "Add a service to a load balancer", loadBalancerCall("add_service", func(_ *dialect.Request, l *cloudsim.LoadBalancer, s serviceRequest) error { return addService(l, s) }))
	actions("update_service", "Change a service of a load balancer", loadBalancerCall("update_service", func(_ *dialect.Request, l *cloudsim.LoadBalancer, s serviceRequest) error { return updateService(l, s) }))
	actions("delete_service", "Delete a service of a load balancer", loadBalancerCall("delete_service", deleteService))
	actions("add_target", "Add a target to a load balancer", loadBalancerCall("add_target", addTarget))
	actions("remove_target", "Remove a target from a load balancer", loadBalancerCall("remove_target", removeTarget))
	actions("change_algorithm", "Change the algorithm of a load balancer", loadBalancerCall("change_algorithm", changeAlgorithm))
	actions("change_type", "Change the type of a load balancer", loadBalancerCall("change_type", changeType))
	actions("attach_to_network", "Attach a load balancer to a network", loadBalancerCall("attach_to_network", attachToNetwork))
	actions("detach_from_network", "Detach a load balancer from a network", loadBalancerCall("detach_from_network", detachFromNetwork))
	actions("change_protection", "Set the deletion protection of a load balancer", loadBalancerCall("change_protection", protectLoadBalancer))
	actions("enable_public_interface", "Enable the public interface of a load balancer: the API shows the public addresses", loadBalancerCall("enable_public_interface", enablePublic))
	actions("disable_public_interface", "Disable the public interface of a load balancer: the API hides the public addresses", loadBalancerCall("disable_public_interface", disablePublic))

	for _, name := range []string{"certificates", "firewalls", "floating_ips", "isos", "primary_ips"} {
		add(name+".list", get, "/"+name, "Return an empty list, because the dialect does not support these resources", noneOf(name).list)
	}
	return all
}

// addCatalogue adds two calls for a catalogue: one call lists the entries, and the other call reads
// one entry.
func addCatalogue[T entry](add func(name, method, path, summary string, fn call), pathName, entryName string, all func(*dialect.Request) ([]T, error)) {
	c := catalogue[T]{one: strings.ReplaceAll(entryName, " ", "_"), many: pathName, all: all}
	add(pathName+".list", "GET", "/"+pathName, "List "+entryName+"s", c.list)
	add(pathName+".get", "GET", "/"+pathName+"/{id}", "Get a "+entryName, c.get)
}

var refusalReasons = map[string]string{
	"POST /v1/certificates":            "load balancers forward TCP without TLS",
	"POST /v1/firewalls":               noFirewalls,
	"/v1/firewalls/{path...}":          noFirewalls,
	"POST /v1/floating_ips":            noAddresses,
	"/v1/floating_ips/{path...}":       noAddresses,
	"POST /v1/primary_ips":             noAddresses,
	"/v1/primary_ips/{path...}":        noAddresses,
	"DELETE /v1/images/{id}":           noImages,
	"PUT /v1/images/{id}":              noImages,
	"/v1/images/{id}/actions/{action}": noImages,

	"POST /v1/servers/{id}/actions/change_alias_ips": noAliasIPs,
	"POST /v1/servers/{id}/actions/change_type":      "a server keeps its type: create another server",
	"POST /v1/servers/{id}/actions/attach_iso":       noImages,
	"POST /v1/servers/{id}/actions/detach_iso":       noImages,
	"POST /v1/servers/{id}/actions/create_image":     noImages,
	"POST /v1/servers/{id}/actions/rebuild":          noImages,
	"POST /v1/servers/{id}/actions/enable_rescue":    noImages,
	"POST /v1/servers/{id}/actions/disable_rescue":   noImages,
	"POST /v1/servers/{id}/actions/enable_backup":    noImages,
	"POST /v1/servers/{id}/actions/disable_backup":   noImages,

	"POST /v1/servers/{id}/actions/change_dns_ptr":        noDNS,
	"POST /v1/load_balancers/{id}/actions/change_dns_ptr": noDNS,
	"POST /v1/networks/{id}/actions/change_ip_range":      "a network keeps its range: create another network",
	"/v1/zones/{path...}":                                 noDNS,
}

const (
	noFirewalls = "this cloud has no firewalls"
	noAddresses = "the cloud chooses the addresses of servers"
	noImages    = "servers of this cloud do not boot from images"
	noDNS       = "this cloud has no DNS"
	noAliasIPs  = "a server has one address in each network"
)
