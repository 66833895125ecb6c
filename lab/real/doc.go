// Package real runs the instances of a simulated cloud as machines. A machine is a set of Linux
// namespaces (network, mount, host name, IPC, processes) and a cgroup. The cgroup limits memory and
// CPUs to the size of the instance type. Each machine has its own containerd, kubelet and
// kube-proxy at their standard paths. It also has the node components of the cloud, and a veth pair
// to the VPC. The package needs Linux, root and the programs that Doctor checks.
//
//	instance is provisioning   create the disk
//	running                    boot the machine; its kubelet registers
//	running, crashed           kill the remaining processes
//	stopping, terminating,     send SIGTERM to all processes, then SIGKILL
//	rebooting
//	stopped                    the machine is off and its disk stays
//	deleted                    delete the disk
//
// A machine that ends by itself has crashed. It stays off until the next operation on its instance,
// for example a reboot, or until the next start of the hypervisor. Meanwhile the cloud still shows
// the instance as running.
//
// # Files and host resources
//
// In Config.Dir:
//
//	vpc.netns          the router of the VPC: a mounted network namespace
//	images/KEY/        containerd's folder with all images unpacked
//	loaded/            archives of images that a user has loaded into all machines
//	machines/ID/       a machine
//	  disk/            data that stays when the machine is off
//	                   (image files are hard links to the files in images/KEY/)
//	  dev/             the machine's /dev, while the machine is on
//	  spares/          one file per disk: the number of the disk's second loop device
//	  etc/             files that the machine reads at boot
//	  boot.json        the boot settings: see package boot
//	  booted           ID of the cloud operation that started the machine
//	  console.log      output of the first process
//
// On the host, the package creates a cgroup named Config.Name in each cgroup hierarchy. This cgroup
// has a child cgroup for each machine. The package also creates a network interface (link) for the
// VPC, with an address, three routes and two routing rules. If the kernel module br_netfilter is
// not loaded, the package loads it. If machines have internet access, the package also creates a
// table of nftables, adds rules to Docker's chain DOCKER-USER, and changes the forwarding settings.
// With internet access over IPv6, the link has one more address and one more route. The package
// does not change other kernel settings or other files of the host.
//
// # Zones
//
// If Config.Zones is empty, a hypervisor serves all zones. Otherwise it serves only the zones in
// Config.Zones. Hypervisors of different zones can share a network namespace, but each hypervisor
// needs its own folder and name. These hypervisors use the bridge and the routes that a router
// process creates with the function Route. The bridge is in the shared network namespace. So the
// machines' cables (veth pairs) stay connected to the bridge when the router ends.
//
// # End of a machine
//
// A machine's first process is PID 1 of its namespace. When this process ends, the kernel ends all
// other processes in the machine and removes the machine's mounts, network and host name. So a
// machine that is off keeps only its disk. If a user kills a hypervisor, the hypervisor's machines
// continue to run. The next hypervisor finds these machines by their cgroups and manages them. If
// no hypervisor starts, Clean finds these machines by their cgroups and ends them.
package real
