package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// ledger checks the data file of a killed cloud. It compares this file with the answers and events
// that the cloud's callers received before the kill.
type ledger struct {
	mu       sync.Mutex
	acks     []ack               // acknowledged answers since the last audit
	refused  map[string]bool     // ids of requests to which the cloud answered with an error
	received map[uint64][32]byte // digests of the events that watchers received, by revision
	lastRev  uint64              // last revision that watchers received

	checked uint64                    // last revision of the journal that an audit has read
	journal map[uint64][32]byte       // digests of all events, by revision
	now     map[string]cloudsim.Event // the last event of every resource
}

// ack is an answer that acknowledges a write. It contains the resource at revision rev. An answer
// without a revision acknowledges the deletion of the resource.
type ack struct {
	request string
	kind    cloudsim.ResourceKind
	id      string
	rev     uint64
	object  []byte
}

func newLedger() *ledger {
	return &ledger{
		refused: map[string]bool{}, received: map[uint64][32]byte{},
		journal: map[uint64][32]byte{}, now: map[string]cloudsim.Event{},
	}
}

func digest(e cloudsim.Event) [32]byte {
	raw, _ := json.Marshal(e)
	return sha256.Sum256(raw)
}

// hear records an event that a watcher received. It returns an error if the watcher missed a
// revision.
func (l *ledger) hear(e cloudsim.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Rev != l.lastRev+1 {
		return fmt.Errorf("the watch sent revision %d after %d", e.Rev, l.lastRev)
	}
	l.lastRev, l.received[e.Rev] = e.Rev, digest(e)
	return nil
}

// auditFile reads the data file of a killed cloud. It returns an error for each
// contradiction between the file and the recorded answers and events.
func (l *ledger) auditFile(dir string) (err error) {
	st, err := store.Open(filepath.Join(dir, "cloud.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	e := engine.New(slog.New(slog.DiscardHandler), st, engine.Default())
	if err := e.Check(); err != nil {
		return fmt.Errorf("the database file is damaged: %w", err)
	}
	ctx := engine.AsCloud(context.Background())
	changed, err := l.readJournal(ctx, e)
	if err != nil {
		return err
	}
	return errors.Join(l.checkAcks(), l.checkHeard(), l.checkObjects(ctx, e, changed), checkWhole(ctx, e))
}

// readJournal reads the journal's events since the last audit and returns the changed resources.
func (l *ledger) readJournal(ctx context.Context, e *engine.Engine) (changed map[string]bool, err error) {
	changed = map[string]bool{}
	for {
		page, err := e.ListEvents(ctx, cloudsim.WatchOptions{Since: l.checked})
		if err != nil {
			return nil, fmt.Errorf("journal after revision %d: %w", l.checked, err)
		}
		for _, ev := range page.Items {
			if l.refused[ev.RequestID] && ev.Kind != cloudsim.KindFault { // the event about a fault's counter has the request id of the call that the fault hit
				return nil, fmt.Errorf("the cloud refused request %s, but the request made revision %d of %s %s", ev.RequestID, ev.Rev, ev.Kind, ev.ID)
			}
			key := string(ev.Kind) + " " + ev.ID
			l.journal[ev.Rev], l.now[key], changed[key] = digest(ev), ev, true
		}
		if page.Revision == l.checked {
			return changed, nil
		}
		l.checked = page.Revision
	}
}

// checkAcks checks that no acknowledged write is lost. The journal must contain the event of the
// write, or a later event of the same resource.
func (l *ledger) checkAcks() error {
	var all []error
	for _, a := range l.acks {
		now, ok := l.now[string(a.kind)+" "+a.id]
		switch {
		case !ok:
			all = append(all, fmt.Errorf("%s: %s %s was acknowledged and is lost", a.request, a.kind, a.id))
		case a.object == nil && now.Type != cloudsim.EventDelete:
			all = append(all, fmt.Errorf("%s: the cloud acknowledged the deletion of %s %s, but the object exists", a.request, a.kind, a.id))
		case a.object != nil && now.Rev < a.rev:
			all = append(all, fmt.Errorf("%s: the cloud acknowledged %s %s at revision %d, but its revision in the file is %d", a.request, a.kind, a.id, a.rev, now.Rev))
		case a.object != nil && now.Rev == a.rev && !bytes.Equal(now.Object, a.object):
			all = append(all, fmt.Errorf("%s: the cloud acknowledged\n%s\nbut stored\n%s", a.request, a.object, now.Object))
		}
	}
	l.acks = nil
	return errors.Join(all...)
}

// checkHeard checks that the journal contains every event that watchers received. The cloud may
// send an event only after the change is durable.
func (l *ledger) checkHeard() error {
	for rev, sum := range l.received {
		if l.journal[rev] != sum {
			return fmt.Errorf("the watch sent revision %d, which the journal lacks or has with other content", rev)
		}
	}
	clear(l.received) // checked events stay valid, because the journal only grows
	return nil
}

// checkObjects compares each changed resource with its last event.
func (l *ledger) checkObjects(ctx context.Context, e *engine.Engine, changed map[string]bool) error {
	var all []error
	for key := range changed {
		ev := l.now[key]
		var v any
		var err error
		switch ev.Kind {
		case cloudsim.KindInstance:
			v, err = e.GetInstance(ctx, cloudsim.InstanceID(ev.ID))
		case cloudsim.KindAddress:
			v, err = e.GetAddress(ctx, cloudsim.AddressID(ev.ID))
		case cloudsim.KindLoadBalancer:
			v, err = e.GetLoadBalancer(ctx, cloudsim.LoadBalancerID(ev.ID))
		case cloudsim.KindDisk:
			v, err = e.GetDisk(ctx, cloudsim.DiskID(ev.ID))
		case cloudsim.KindSnapshot:
			v, err = e.GetSnapshot(ctx, cloudsim.SnapshotID(ev.ID))
		case cloudsim.KindNetwork:
			v, err = e.GetNetwork(ctx, cloudsim.NetworkID(ev.ID))
		case cloudsim.KindSubnet:
			v, err = e.GetSubnet(ctx, cloudsim.SubnetID(ev.ID))
		case cloudsim.KindRoute:
			v, err = e.GetRoute(ctx, cloudsim.RouteID(ev.ID))
		case cloudsim.KindOperation:
			var op cloudsim.Operation
			if op, err = e.GetOperation(ctx, cloudsim.OperationID(ev.ID)); !op.Over() {
				op.Percent = 0 // the cloud computes this field from the clock at each read, and does not store it
			}
			v = op
		default:
			continue
		}
		if ev.Type == cloudsim.EventDelete {
			if !errors.Is(err, cloudsim.NotFound) {
				all = append(all, fmt.Errorf("%s was deleted at revision %d, but a read returned %v, %v", key, ev.Rev, v, err))
			}
			continue
		}
		raw, merr := json.Marshal(v)
		if err = errors.Join(err, merr); err != nil || !bytes.Equal(raw, ev.Object) {
			all = append(all, fmt.Errorf("%s: the journal has\n%s\nthe table has\n%s (%v)", key, ev.Object, raw, err))
		}
	}
	return errors.Join(all...)
}

func TestLedgerFindsWrongAnswers(t *testing.T) {
	put := cloudsim.Event{Rev: 1, Type: cloudsim.EventPut, Kind: cloudsim.KindAddress, ID: "addr-000001", Object: json.RawMessage(`{}`)}
	for name, answer := range map[string]ack{
		"object is missing":           {kind: put.Kind, id: "addr-000002", rev: 1, object: []byte(`{}`)},
		"object differs":              {kind: put.Kind, id: put.ID, rev: 1, object: []byte(`{"ip":"127.65.0.1"}`)},
		"revision is too old":         {kind: put.Kind, id: put.ID, rev: 2, object: []byte(`{}`)},
		"deleted object still exists": {kind: put.Kind, id: put.ID},
	} {
		l := newLedger()
		l.journal[1], l.now["address addr-000001"] = digest(put), put
		l.acks = []ack{answer}
		if l.checkAcks() == nil {
			t.Errorf("%s: checkAcks returned no error", name)
		}
	}
	l := newLedger()
	if l.hear(put) != nil || l.hear(put) == nil {
		t.Error("the ledger did not find a repeated event")
	}
	if l.checkHeard() == nil {
		t.Error("the ledger did not find an event that the journal lacks")
	}
}
