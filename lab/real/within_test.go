package real

import (
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
)

// A thread that runs a function in another network namespace returns to its own namespace
// afterward. This is also true for the first thread of a process, which is the thread that
// /proc/self shows. The test starts a new process with many goroutines. The first thread of the new
// process has no other work, so it runs one of these goroutines.
func TestThreadReturnsToItsNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the test needs root")
	}
	if os.Getenv("NETNS_TEST_CHILD") == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestThreadReturnsToItsNamespace$")
		cmd.Env = append(os.Environ(), "NETNS_TEST_CHILD=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	in := func(thread string) string {
		ns, err := os.Readlink("/proc/" + thread + "/ns/net")
		if err != nil {
			t.Error(err)
		}
		return ns
	}
	originalNS := in("self")
	var first atomic.Bool
	var entered, back sync.WaitGroup
	const threads = 100
	entered.Add(threads)
	for range threads {
		back.Go(func() {
			var once sync.Once
			defer once.Do(entered.Done)
			err := withinNew(func() error {
				if in("thread-self") == originalNS {
					t.Error("the function does not run in the other namespace")
				}
				once.Do(entered.Done)
				entered.Wait()
				if in("self") == in("thread-self") {
					first.Store(true)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	back.Wait()
	if now := in("self"); now != originalNS || !first.Load() {
		t.Errorf("first thread: got the namespace %s, want %s; ran the function in the other namespace: got %t, want true", now, originalNS, first.Load())
	}
}
