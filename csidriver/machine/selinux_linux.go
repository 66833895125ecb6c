package machine

import (
	"os"

	"golang.org/x/sys/unix"
)

// canonical is how the kernel shows an SELinux label: its categories in order.
// A label that this kernel does not know, or has no use for, stays as it is.
func canonical(label string) string {
	if label == "" {
		return ""
	}
	f, err := os.OpenFile("/sys/fs/selinux/context", os.O_RDWR, 0)
	if err != nil {
		return label // no SELinux
	}
	defer f.Close()
	if _, err := f.WriteString(label); err != nil {
		return label
	}
	b := make([]byte, 4096)
	n, err := f.Read(b)
	if err != nil {
		return label
	}
	return unix.ByteSliceToString(b[:n])
}
