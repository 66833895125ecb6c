// Package hollow makes the instances of a simulated cloud true as hollow
// Kubernetes nodes: machines without a kernel, a container or a process of
// their own. Three parts follow the cloud and the cluster side by side.
//
// # Kubelets
//
// For each instance it does what a kubelet with --cloud-provider=external,
// without --node-ip and without a provider id in its configuration, does on
// that machine, and no more. Zone, region, type, provider id and IP addresses
// are not its business: the cloud controller manager must bring them.
//
//	instance is running      register a Node with the uninitialized taint, and
//	                         hand it to kwok
//	stopping, terminating,   take it from kwok; Ready=False "node is shutting
//	rebooting, gone          down", as kubelet's graceful node shutdown ends
//	stopped                  nothing: the cloud controller puts the taint
//	running again            a new boot id, and back to kwok
//
// It never deletes a Node. When an instance follows another of the same name,
// it waits until the cloud controller manager has removed the earlier one's
// Node, which carries another provider id. A Node that a person deletes while
// its instance runs comes back when the instance boots the next time, or when
// the hypervisor starts: a kubelet registers once, when it starts.
//
// All that it knows is in the cloud and in the API server, so a hypervisor
// that was killed goes on where it was, and sees what it missed.
//
// # IPAM
//
// A pod on a machine that is on gets an address of each of its Node's podCIDRs,
// as from CNI's host-local plugin: none that another pod of the node has. On a
// node without ranges, or with none free, it stays Pending. A pod on its node's
// network needs none.
//
// # Responders
//
// On each machine that is on and registered, a responder stands for
// kube-proxy and for all pods behind it: it listens on the instance's internal
// IP at every Service's node port and answers with the pod that it stands for;
// at port 10256 with the proxy's health; and at health check node ports. A
// port that leads nowhere is not listened on, so that connecting is refused,
// as kube-proxy rejects it.
//
// The price is a socket and a goroutine for each node and port, about 9 KiB:
// 1,000 nodes and 10 node ports are 11,000 open files and 95 MiB. Changes are
// gathered for 50 ms before sockets follow them.
//
// # kwok
//
// Kwok runs beside it and keeps alive what it is handed: leases, conditions,
// pods. For that its configuration must say:
//
//   - manageNodesWithLabelSelector: kwok.x-k8s.io/node=fake. The label is on a
//     Node while its machine is on. An annotation would not do: kwok v0.8.0
//     filters annotations itself, drops the update that takes one away, and
//     goes on renewing the lease for ever, even of a Node that was deleted. The
//     annotation of the same name only says, for good, that a Node is hollow.
//   - node stages that match that label too; one that makes Ready=True of
//     whatever else it is; none that writes addresses, taints, capacity,
//     nodeInfo or labels. Kwok's stock stage for nodes writes an empty list of
//     addresses over the host name.
//   - a pod stage that runs a pod once it has an address, and gives it none.
//     Kwok's own way forgets: what pods had before it started again is given
//     out a second time until it has looked at each of them.
//   - a pod stage that makes a pod that is Running and not Ready Ready again:
//     the node lifecycle controller marks the pods of a node that shut down as
//     not ready, and it is their kubelet that says otherwise when it is back.
//   - podsOnNodeSyncParallelism above 0, or kwok overlooks the pods of a node
//     that it is handed later.
//
// Nobody but kwok may hold the nodes' leases: they are also its locks, and it
// leaves nodes and pods alone whose lease another holds, such as a kwok that
// was killed, until it expires.
package hollow
