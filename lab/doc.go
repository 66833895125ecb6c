// Package lab has the parts that all labs share: the keys and certificates of a cluster,
// the objects that a cluster needs, the accounts and first instances in the cloud, and the
// address ranges. Package process runs a lab as processes of this machine. Package compose
// runs its components in containers. Packages hollow and real turn the cloud's instances
// into nodes.
//
// Each component has its own certificate, and rbac.yaml has its permissions in the
// cluster. In the cloud, each component has its own token.
package lab
