// Package hollow runs the instances of a simulated cloud as hollow Kubernetes nodes:
// machines without a kernel, containers or processes. The process that runs this package
// is a hypervisor. The package has three parts, which watch the cloud and the cluster
// independently.
//
// # Kubelets
//
// For each instance, the package acts as the kubelet of the instance's machine. This kubelet has
// the flag --cloud-provider=external, but no flag --node-ip and no provider id in its
// configuration. The kubelet does not set the zone, region, type, provider id and IP addresses of
// its Node. The cloud controller manager must set these fields.
//
//	instance is running      register a Node with the uninitialized taint, and add
//	                         the label for kwok to the Node
//	stopping, terminating,   remove the label and set Ready=False "node is shutting
//	rebooting, gone          down", as a kubelet's graceful node shutdown does
//	stopped                  no action: the cloud controller manager adds the shutdown taint
//	crashed, or zone dark    remove only the label, so the lease of the Node expires
//	running again            set a new boot id and add the label again
//
// The package never deletes a Node. A new instance may have the name of an earlier instance. If a
// Node with the earlier instance's provider id still exists, the package waits until the cloud
// controller manager has deleted this Node. Then the package registers the new instance. If a user
// deletes the Node of a running instance, the Node returns when the instance boots again or when
// the hypervisor starts. The reason is that a kubelet registers only once, at its start.
//
// All state is in the cloud and in the API server. So a restarted hypervisor continues the work of
// the earlier hypervisor, and handles the changes since the end of the earlier hypervisor.
//
// # IPAM
//
// Each Node has pod ranges in spec.podCIDRs. A pod on a running machine gets one address from
// each range. CNI's host-local plugin assigns addresses in the same way. Two pods of a node never
// have the same address. On a node without ranges or without a free address, the pod stays
// Pending. A pod on the host's network gets no address from IPAM.
//
// # Responders
//
// Each running, registered machine has a responder, which replaces kube-proxy and the pods to which
// kube-proxy would send connections. The responder listens on the instance's internal IP:
//
//   - at the node port of every Service, where it answers as if it were a pod,
//   - at port 10256, where it answers kube-proxy's health checks,
//   - at health check node ports,
//   - at port 10250, the kubelet's API, if Config.Kubelet is set.
//
// A node port without usable endpoints has no socket, so the kernel refuses connections.
// kube-proxy also rejects these connections.
//
// Each port of each node needs a socket and a goroutine, which use about 9 KiB. For example, 1,000
// nodes with 10 node ports and the port 10256 take 11,000 open files and 95 MiB. The package
// collects changes for 50 ms before it updates the sockets.
//
// # kwok
//
// Kwok and the hypervisor are separate programs that run at the same time. Kwok renews the leases
// of the labeled nodes, and updates the nodes' conditions and pods. The configuration of kwok must
// contain these settings:
//
//   - manageNodesWithLabelSelector: kwok.x-k8s.io/node=fake. A Node has this label while its
//     machine is on. An annotation instead of the label would not work. Kwok v0.8.0 filters
//     annotations in its own process, and ignores the update that removes an annotation. So
//     kwok would renew the lease forever, even after the deletion of the Node. A Node also has
//     an annotation of the same name. This annotation only marks the Node as hollow, and no
//     component removes it.
//   - node stages that match this label. One stage must set Ready=True whenever Ready is
//     not True. No stage may write addresses, taints, capacity, nodeInfo or labels. Kwok's
//     default stage for nodes writes an empty list of addresses, which removes the address of
//     the type Hostname.
//   - a pod stage that runs a pod after the pod has an address. No stage may assign an address
//     to a pod. Kwok's own assignment of addresses loses its records at a restart. Until kwok
//     has read all pods again, it may assign an address that a pod already uses.
//   - a pod stage that sets Ready on a pod that is Running and not Ready. When a node shuts
//     down, the node lifecycle controller marks the node's pods as not ready. When the node
//     runs again, the kubelet of a real node makes the pods Ready again. On a hollow node,
//     this stage makes them Ready.
//   - podsOnNodeSyncParallelism above 0. Otherwise kwok does not run the existing pods of a Node
//     when the Node gets the label.
//
// Only kwok may hold the leases of these nodes, because kwok also uses the leases as locks.
// While another program holds a node's lease, kwok ignores this node and its pods. An earlier kwok
// that was killed also holds its leases until they expire.
package hollow
