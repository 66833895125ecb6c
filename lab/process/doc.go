// Package process runs a lab as processes of this machine. The processes are the simulated cloud,
// etcd, the Kubernetes control plane, kwok and the cloud controller manager. The hypervisor, which
// turns instances into nodes, is a part of the lab's own process. The lab starts independent
// components in parallel and restarts components that die. It stops the components in the reverse
// order of their start. No process of a lab outlives the lab. The lab needs Linux. Hollow nodes run
// no containers. Real nodes run containers, and need root.
//
// The data dir is the folder with all files of a lab:
//
//	CLOUDSIM_LAB   marks the folder as a data dir; Reset empties only a folder with this file
//	lab.json       kept for the next start: ports, networks and whether the
//	               first instances were created
//	run.json       the running components; deleted on a clean stop
//	kubeconfig     the cluster administrator's kubeconfig, mode 0600
//	env            variables for kubectl and the cloud's CLI; a shell reads them with: . DATADIR/env
//	cloud.yaml     for the cloud's CLI: URL and token file, and the URL of the console
//	bin/           links to kubectl and allinone
//	pki/           keys and certificates, mode 0600
//	config/        files for components: kubeconfigs, kwok's stages
//	logs/          the current and the previous log of each component
//	etcd/ cloud/   the data of the cluster and of the cloud, and tokens
//
// Command lines and environments of components contain no secrets. See controlplane.go
// for the detection of dead nodes.
package process
