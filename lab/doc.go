// Package lab contains the parts that all labs share. A lab is a simulated cloud with a Kubernetes
// cluster on the cloud's instances. The shared parts are keys and certificates, objects of the
// cluster, address ranges, and the accounts and first instances in the cloud. Package process runs
// a lab as processes of this machine. Package compose runs the components of a lab in containers.
// Packages hollow and real turn the cloud's instances into nodes.
//
// Each component has its own certificate for the cluster and its own token for the cloud. The file
// rbac.yaml contains the permissions of the components in the cluster.
package lab
