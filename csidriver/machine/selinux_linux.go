package machine

import (
	"os"

	"golang.org/x/sys/unix"
)

// canonicalLabel returns an SELinux label in the kernel's format. It asks the
// kernel if possible. In a container, even a privileged one, selinuxfs may be
// invisible. In this case canonicalLabel computes the format itself.
func canonicalLabel(label string) string {
	if label == "" {
		return ""
	}
	label = sortCategories(label)
	f, err := os.OpenFile("/sys/fs/selinux/context", os.O_RDWR, 0)
	if err != nil {
		return label
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
