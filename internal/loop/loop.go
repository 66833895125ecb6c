// Package loop attaches files to loop devices and finds the devices of files. It
// calls the kernel directly and starts no program. It exists on Linux only, and
// knows no mounts and no filesystems.
package loop
