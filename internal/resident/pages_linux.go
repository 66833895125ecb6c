package resident

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// dropProgramPages unmaps the pages of the program's file that are mapped
// read-only: code and constants. They are clean, so nothing is lost: the next
// use maps them again (madvise(2), MADV_DONTNEED).
func dropProgramPages() error {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	var failed []error
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		from, to, ok := readOnlyRange(lines.Text(), self)
		if !ok {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			failed = append(failed, fmt.Errorf("madvise %x-%x: %w", from, to, errno))
		}
	}
	return errors.Join(failed...)
}

// readOnlyRange reads a line of /proc/PID/maps (proc_pid_maps(5)); false if it
// is not a read-only mapping of the file.
func readOnlyRange(line, file string) (from, to uintptr, ok bool) {
	var perms string
	if n, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &perms); n != 3 || err != nil {
		return 0, 0, false
	}
	return from, to, (perms == "r--p" || perms == "r-xp") && strings.HasSuffix(line, " "+file)
}
