package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// auditKeep is the number of audit entries that the engine keeps in memory. The
// entries take some megabytes.
const auditKeep = 16_384

// ledger holds the audit trail and the bill. The engine keeps both only in
// memory, because a call that only reads must not cause a write to the store. A
// restart begins with an empty ledger.
type ledger struct {
	mu    sync.Mutex
	ring  []cloudsim.AuditEntry
	total uint64 // entries ever added; if ring is full, ring[total % len] is the oldest
	from  time.Time
	rows  map[billKey]*cloudsim.BillCounts
}

type billKey struct{ caller, operation string }

// Record adds a finished call to the audit trail and the bill. It takes a lock
// and does no I/O.
func (ac *access) Record(entry cloudsim.AuditEntry) {
	l := &ac.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ring) < auditKeep {
		l.ring = append(l.ring, entry)
	} else {
		l.ring[l.total%auditKeep] = entry
	}
	l.total++
	if l.rows == nil {
		l.rows = map[billKey]*cloudsim.BillCounts{}
	}
	key := billKey{entry.Caller, entry.Operation}
	row := l.rows[key]
	if row == nil {
		row = &cloudsim.BillCounts{}
		l.rows[key] = row
	}
	row.Add(entry)
}

// kept returns the entries in memory, oldest first. The caller must hold the
// lock of the ledger.
func (l *ledger) kept() []cloudsim.AuditEntry {
	if len(l.ring) < auditKeep {
		return l.ring
	}
	oldest := l.total % auditKeep
	return slices.Concat(l.ring[oldest:], l.ring[:oldest])
}

// Audit returns the audit entries in memory that match the options o.
func (ac *access) Audit(_ context.Context, o cloudsim.AuditOptions) (cloudsim.AuditTrail, error) {
	l := &ac.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	all := cloudsim.AuditTrail{Items: []cloudsim.AuditEntry{}, Dropped: l.total - uint64(len(l.ring))}
	for _, entry := range l.kept() {
		if o.Covers(entry) {
			all.Items = append(all.Items, entry)
		}
	}
	if o.Limit > 0 && len(all.Items) > o.Limit {
		all.Items = all.Items[len(all.Items)-o.Limit:]
	}
	return all, nil
}

// Bill sums the calls that match the options o. If o.Since is zero, Bill sums
// all calls since the last reset. Otherwise Bill reads the audit entries in
// memory, and sums the calls since o.Since.
func (ac *access) Bill(_ context.Context, o cloudsim.AuditOptions) (cloudsim.Bill, error) {
	now := ac.Now()
	l := &ac.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	b := cloudsim.Bill{From: l.from, To: now, Complete: true, Rows: []cloudsim.BillRow{}}
	rows := map[billKey]*cloudsim.BillCounts{}
	if o.Since.IsZero() {
		for key, row := range l.rows {
			if o.Covers(cloudsim.AuditEntry{Caller: key.caller, Operation: key.operation}) {
				rows[key] = row
			}
		}
	} else {
		b.From = o.Since
		kept := l.kept()
		b.Complete = l.total == uint64(len(kept)) || kept[0].Time.Before(o.Since)
		for _, entry := range kept {
			if !o.Covers(entry) {
				continue
			}
			key := billKey{entry.Caller, entry.Operation}
			if rows[key] == nil {
				rows[key] = &cloudsim.BillCounts{}
			}
			rows[key].Add(entry)
		}
	}
	for key, row := range rows {
		r := cloudsim.BillRow{Caller: key.caller, Operation: key.operation, BillCounts: *row}
		r.Errors = maps.Clone(row.Errors)
		b.Rows = append(b.Rows, r)
		b.Total.Merge(*row)
	}
	slices.SortFunc(b.Rows, func(x, y cloudsim.BillRow) int {
		return cmp.Or(cmp.Compare(x.Caller, y.Caller), cmp.Compare(x.Operation, y.Operation))
	})
	return b, nil
}

// ResetBill sets all sums of the bill to zero and the begin of the bill to the present time.
// The audit trail does not change.
func (ac *access) ResetBill(context.Context) error {
	now := ac.Now()
	l := &ac.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows, l.from = nil, now
	return nil
}
