// Package conform checks whether a cloud controller manager (CCM) fulfills the contract between
// Kubernetes and cloud providers. The sources of the contract are the package
// k8s.io/cloud-provider, KEP-2392 (cloud controller manager) and KEP-2395 (removal of the
// in-tree providers).
//
// The package needs an API server, a running CCM and a [Driver]. The driver manages the machines of
// the cloud and reads the cloud's load balancers and routes. The package creates Node objects and
// renews their Leases, so it needs no kubelet. A [Check] changes the cloud or the cluster, and
// observes the reaction of the CCM.
//
// The package depends on no cloud. If the driver does not claim a capability, the checks of this
// capability get the verdict Skip.
package conform
