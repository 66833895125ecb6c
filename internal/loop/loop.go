// Package loop attaches files to loop devices and finds the devices of files.
// It calls the kernel directly and starts no program. The package works only on
// Linux. It does not handle mounts and filesystems.
package loop
