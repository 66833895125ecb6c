package conform

import (
	"errors"
	"testing"
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
