// Package lab composes a whole cluster on one machine: the simulated cloud,
// etcd, the Kubernetes control plane, kwok, the cloud controller manager and
// the hypervisor that turns instances into nodes. It starts what can start
// together, keeps it running, and stops it in reverse order; nothing that it
// started outlives it. It needs Linux, and no root.
//
// Everything a lab knows is in one folder, its data dir:
//
//	CLOUDSIM_LAB   marks the folder as ours; Reset empties no other
//	lab.json       what the next start must find again: ports, networks,
//	               whether the first instances were made
//	run.json       what runs now; gone after a clean stop
//	kubeconfig     for people, mode 0600
//	env            the same as shell variables: . DATADIR/env
//	cloud.yaml     for the cloud's CLI: URL and token file
//	bin/           kubectl and allinone, as links
//	pki/           keys and certificates, mode 0600
//	config/        what the components read: a kubeconfig each, kwok's stages
//	logs/          one file per component, and the one before it
//	etcd/ cloud/   the cluster's and the cloud's records, and tokens
//
// Who is who: each component has a certificate of its own, and what it may do
// in the cluster stands in rbac.yaml; in the cloud, each has a token of its
// own. Nothing is secret in a command line or an environment.
//
// When does a node fall silent: see controlplane.go. What kwok does: see
// kwok.yaml. What a hollow node is: see package hollow.
package lab
