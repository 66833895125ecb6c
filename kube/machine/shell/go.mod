module github.com/cloudsim-dev/allinone/kube/machine/shell

go 1.26.3

tool (
	github.com/u-root/gobusybox/src/cmd/makebb
	github.com/u-root/u-root/cmds/core/base64
	github.com/u-root/u-root/cmds/core/basename
	github.com/u-root/u-root/cmds/core/cat
	github.com/u-root/u-root/cmds/core/chmod
	github.com/u-root/u-root/cmds/core/cmp
	github.com/u-root/u-root/cmds/core/cp
	github.com/u-root/u-root/cmds/core/date
	github.com/u-root/u-root/cmds/core/dd
	github.com/u-root/u-root/cmds/core/df
	github.com/u-root/u-root/cmds/core/dirname
	github.com/u-root/u-root/cmds/core/dmesg
	github.com/u-root/u-root/cmds/core/du
	github.com/u-root/u-root/cmds/core/echo
	github.com/u-root/u-root/cmds/core/false
	github.com/u-root/u-root/cmds/core/find
	github.com/u-root/u-root/cmds/core/free
	github.com/u-root/u-root/cmds/core/grep
	github.com/u-root/u-root/cmds/core/gzip
	github.com/u-root/u-root/cmds/core/head
	github.com/u-root/u-root/cmds/core/hexdump
	github.com/u-root/u-root/cmds/core/hostname
	github.com/u-root/u-root/cmds/core/id
	github.com/u-root/u-root/cmds/core/ip
	github.com/u-root/u-root/cmds/core/kill
	github.com/u-root/u-root/cmds/core/ln
	github.com/u-root/u-root/cmds/core/ls
	github.com/u-root/u-root/cmds/core/md5sum
	github.com/u-root/u-root/cmds/core/mkdir
	github.com/u-root/u-root/cmds/core/mktemp
	github.com/u-root/u-root/cmds/core/more
	github.com/u-root/u-root/cmds/core/mount
	github.com/u-root/u-root/cmds/core/mv
	github.com/u-root/u-root/cmds/core/netcat
	github.com/u-root/u-root/cmds/core/netstat
	github.com/u-root/u-root/cmds/core/ping
	github.com/u-root/u-root/cmds/core/printenv
	github.com/u-root/u-root/cmds/core/ps
	github.com/u-root/u-root/cmds/core/pwd
	github.com/u-root/u-root/cmds/core/readlink
	github.com/u-root/u-root/cmds/core/realpath
	github.com/u-root/u-root/cmds/core/rm
	github.com/u-root/u-root/cmds/core/seq
	github.com/u-root/u-root/cmds/core/shasum
	github.com/u-root/u-root/cmds/core/sleep
	github.com/u-root/u-root/cmds/core/sort
	github.com/u-root/u-root/cmds/core/strings
	github.com/u-root/u-root/cmds/core/sync
	github.com/u-root/u-root/cmds/core/tail
	github.com/u-root/u-root/cmds/core/tar
	github.com/u-root/u-root/cmds/core/tee
	github.com/u-root/u-root/cmds/core/time
	github.com/u-root/u-root/cmds/core/timeout
	github.com/u-root/u-root/cmds/core/touch
	github.com/u-root/u-root/cmds/core/tr
	github.com/u-root/u-root/cmds/core/true
	github.com/u-root/u-root/cmds/core/truncate
	github.com/u-root/u-root/cmds/core/tty
	github.com/u-root/u-root/cmds/core/umount
	github.com/u-root/u-root/cmds/core/uname
	github.com/u-root/u-root/cmds/core/uniq
	github.com/u-root/u-root/cmds/core/uptime
	github.com/u-root/u-root/cmds/core/wc
	github.com/u-root/u-root/cmds/core/wget
	github.com/u-root/u-root/cmds/core/which
	github.com/u-root/u-root/cmds/core/xargs
	github.com/u-root/u-root/cmds/core/yes
	github.com/u-root/u-root/cmds/exp/traceroute
	github.com/u-root/u-root/cmds/exp/watch
)

require (
	golang.org/x/term v0.41.0
	mvdan.cc/sh/v3 v3.13.1
)

require (
	github.com/cenkalti/backoff/v4 v4.1.3 // indirect
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/ishidawataru/sctp v0.0.0-20230406120618-7ff4192f6ff2 // indirect
	github.com/klauspost/compress v1.18.0 // indirect
	github.com/klauspost/pgzip v1.2.6 // indirect
	github.com/mdlayher/socket v0.5.1 // indirect
	github.com/mdlayher/vsock v1.2.1 // indirect
	github.com/pierrec/lz4/v4 v4.1.22 // indirect
	github.com/rck/unit v0.0.3 // indirect
	github.com/u-root/cpuid v0.0.1-0.20250320140348-cc5fe81d966c // indirect
	github.com/u-root/gobusybox/src v0.0.0-20250101170133-2e884e4509c7 // indirect
	github.com/u-root/u-root v0.16.0 // indirect
	github.com/u-root/uio v0.0.0-20240224005618-d2acac8f3701 // indirect
	github.com/vishvananda/netlink v1.3.0 // indirect
	github.com/vishvananda/netns v0.0.4 // indirect
	golang.org/x/exp v0.0.0-20250305212735-054e65f0b394 // indirect
	golang.org/x/mod v0.29.0 // indirect
	golang.org/x/net v0.47.0 // indirect
	golang.org/x/sync v0.18.0 // indirect
	golang.org/x/sys v0.42.0 // indirect
	golang.org/x/tools v0.38.0 // indirect
	pack.ag/tftp v1.0.1-0.20181129014014-07909dfbde3c // indirect
)
