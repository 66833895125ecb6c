package resident

import (
	"bufio"
	"context"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// fileResident is RssFile of this process in KiB.
func fileResident(t *testing.T) int {
	t.Helper()
	f, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "RssFile:"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no RssFile in /proc/self/status")
	return 0
}

// The pages go, and the program runs on without them.
func TestDropProgramPages(t *testing.T) {
	before := fileResident(t)
	if err := dropProgramPages(); err != nil {
		t.Fatal(err)
	}
	if after := fileResident(t); after >= before {
		t.Errorf("%d KiB of files are resident after, %d before", after, before)
	}
}

func TestReadOnlyRange(t *testing.T) {
	for line, want := range map[string]bool{
		"00400000-02399000 r-xp 00000000 fe:00 9978148    /usr/bin/allinone":     true,
		"02399000-047c2000 r--p 01f99000 fe:00 9978148    /usr/bin/allinone":     true,
		"047c2000-04899000 rw-p 043c2000 fe:00 9978148    /usr/bin/allinone":     false, // our variables
		"7f4ac1539000-7f4ac168f000 r-xp 00026000 fe:00 32 /usr/lib/libc.so.6":    false,
		"7f4a63f40000-7f4a64000000 rw-p 00000000 00:00 0 ":                       false,
		"00400000-02399000 r-xp 00000000 fe:00 9978148    /opt/usr/bin/allinone": false,
		"rubbish": false,
	} {
		if _, _, ok := readOnlyRange(line, "/usr/bin/allinone"); ok != want {
			t.Errorf("%q: %v, want %v", line, ok, want)
		}
	}
}

func TestTrimEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := Trim(ctx, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
}
