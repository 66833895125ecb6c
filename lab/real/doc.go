// Package real makes the instances of a simulated cloud true as machines: each
// is a set of Linux namespaces (network, mount, host name, IPC, processes) and
// a cgroup of the size of its type, with its own containerd, kubelet and
// kube-proxy at their standard paths, what the cloud's own subsystems have on a
// node, and a cable to the VPC. It needs Linux and root, and no more: see Doctor.
//
//	instance is provisioning   its disk is made
//	running                    the machine boots, and its kubelet registers
//	running, crashed           the power is cut
//	stopping, terminating,     SIGTERM for everything in it, then the power is
//	rebooting                  cut
//	stopped                    it is off; its disk stays
//	gone                       the disk goes, too
//
// A machine that ends by itself has crashed: it stays off, and the cloud goes
// on calling its instance running, until somebody reboots it.
//
// # What is where
//
// In Config.Dir:
//
//	vpc.netns          the router of the VPC: a network namespace, mounted
//	images/KEY/        a containerd's folder with all images unpacked, once
//	machines/ID/       a machine
//	  disk/            what stays when it is off; its images are links
//	  etc/             what it reads when it boots
//	  boot.json        how it boots: see package boot
//	  booted           the operation that made it run
//	  console.log      what its first process says
//
// On the host: a cgroup named Config.Name in each hierarchy, a cgroup for each
// machine below it; a link, an address and two routes to the VPC. Kernel
// settings, firewall and files of the host are not touched.
//
// # Zones
//
// A hypervisor serves all zones, or those that Config.Zones names: then others
// may be beside it, in this network namespace and with folders and names of their
// own. What they share, the bridge and the routes, is made by one more process,
// Route, and the bridge is in the namespace that they share: cables stay in it
// when the router ends, and go, by the kernel, when their machine does.
//
// # Who ends what
//
// A machine's first process is PID 1 of its namespace: when it ends, the kernel
// ends everything in the machine, and mounts, network and names go with it. So
// switching off cannot leave anything behind, and a hypervisor that is killed
// leaves whole machines: the next one takes them over (by the cgroup, which is
// the only list that cannot be wrong), or Clean ends them.
package real
