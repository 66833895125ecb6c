// Package lab composes a whole cluster on one machine: the simulated cloud,
// etcd, the Kubernetes control plane, kwok, the cloud controller manager and
// the hypervisor that turns instances into nodes. It starts what can start
// together, keeps it running, and stops it in reverse order; nothing that it
// started outlives it. It needs Linux, and no root.
//
// Everything a lab knows is in one folder, its data dir:
//
//	CLOUDSIM_LAB   marks the folder as ours; Reset empties no other
//	lab.json       what a second start must find again: ports, what was seeded
//	run.json       what runs now; gone after a clean stop
//	kubeconfig     for people, mode 0600
//	env            the same as shell variables: . DATADIR/env
//	bin/           kubectl and allinone, as links
//	pki/           keys and certificates, mode 0600
//	config/        what the components read: a kubeconfig each, kwok's stages
//	logs/          one file per component, and the one before it
//	etcd/ cloud/   the cluster's and the cloud's records
package lab
