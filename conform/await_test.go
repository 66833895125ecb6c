package conform

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestStaysNeedsTheObject proves that nodeStays fails if the watch has not reported the Node.
func TestStaysNeedsTheObject(t *testing.T) {
	e := &env{observe: time.Millisecond, seen: newObserver()}
	if err := e.nodeStays(t.Context(), "a", "in the cluster", anyObject); !errors.Is(err, errUnseen) {
		t.Errorf("without the Node: got error %v, want %v", err, errUnseen)
	}
	e.seen.recordVersion(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, false)
	if err := e.nodeStays(t.Context(), "a", "in the cluster", anyObject); err != nil {
		t.Errorf("with the Node: got error %v", err)
	}
}

// TestStaysChecksEachVersion proves that nodeStays detects a wrong version that the next version
// replaces at once.
func TestStaysChecksEachVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &env{observe: time.Minute, seen: newObserver()}
		record := func(labels map[string]string) {
			e.seen.recordVersion(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: labels}}, false)
		}
		wrong := errors.New("the Node has a label")
		noLabel := func(n *v1.Node) error {
			if len(n.Labels) > 0 {
				return wrong
			}
			return nil
		}
		record(map[string]string{"before": "the observation"})
		record(nil)
		result := make(chan error, 1)
		go func() { result <- e.nodeStays(t.Context(), "a", "without labels", noLabel) }()
		synctest.Wait()
		record(map[string]string{"a": "b"})
		record(nil)
		if err := <-result; !errors.Is(err, wrong) {
			t.Errorf("a wrong version between two correct versions: got error %v, want %v", err, wrong)
		}
	})
}
