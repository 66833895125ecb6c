// Package hollow makes the instances of a simulated cloud true as hollow
// Kubernetes nodes: machines without a kernel, a container or a process of
// their own. Two halves follow the cloud and the cluster side by side.
//
// # The hypervisor
//
// It does for each instance what a kubelet with --cloud-provider=external,
// without --node-ip and without a provider id in its configuration, does on
// that machine, and no more. Zone, region, type, provider id and IP addresses
// are not its business: the cloud controller manager must bring them.
//
//	instance is running      register a Node, Ready, with the uninitialized
//	                         taint; renew its lease every ten seconds
//	stopping, terminating,   Ready=False "node is shutting down", and silence,
//	rebooting, gone          as kubelet's graceful node shutdown ends
//	stopped                  nothing: the taint is put by the cloud controller
//	running again            Ready=True, a new boot id
//
// It never deletes a Node. When an instance follows another of the same name,
// it waits until the cloud controller manager has removed the earlier one's
// Node, which carries another provider id. A Node that a person deletes while
// its instance runs comes back when the instance boots the next time, or the
// hypervisor does: a kubelet registers once, when it starts.
//
// All that it knows is in the cloud and in the API server, so a hypervisor
// that was killed goes on where it was.
//
// # The responders
//
// On each machine that is on and registered, a responder stands for
// kube-proxy and for all pods behind it: it listens on the instance's internal
// IP at every Service's node port and answers with the pod that it stands for;
// at port 10256 with the proxy's health; and at health check node ports. A
// port without an endpoint to go to is not listened on, so that connecting is
// refused, as kube-proxy rejects it.
//
// The price is a socket and two goroutines, about 10 KiB, for each node and
// port: 1,000 nodes with 10 node ports take 11,000 files and 110 MiB. Changes
// are gathered for 50 ms before sockets follow them.
//
// # kwok
//
// KwokConfig is the configuration that kwok needs beside it: it runs the pods
// of hollow nodes, and only that. What may look simpler does not work with
// kwok v0.8.0:
//
//   - Nodes chosen by annotation cannot be let go: kwok drops the update that
//     takes the annotation away, and renews the lease for ever, even when the
//     Node is deleted. Chosen by label, the API server itself tells it that the
//     node has left. So the label kwok.x-k8s.io/node=fake is on a Node while
//     its machine is on, and the annotation of that name says for good that
//     the Node is hollow.
//   - kwok's leases are its locks between replicas. After SIGKILL they stay
//     held for 40 s, and its successor leaves nodes and pods alone until then.
//     So the lease is the hypervisor's, held in the node's name as a kubelet's.
//   - Its usual stage for nodes writes an empty list of addresses over the
//     host name, unless it also writes an IP address of its own. So node
//     status is the hypervisor's too.
package hollow
