package machine

import (
	"os"

	"golang.org/x/sys/unix"
)

// canonical is how the kernel shows an SELinux label. The kernel itself is asked
// if it can be: a container may not see its selinuxfs, privileged or not.
func canonical(label string) string {
	if label == "" {
		return ""
	}
	label = ordered(label)
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
