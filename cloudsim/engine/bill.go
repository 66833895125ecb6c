package engine

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// auditKeep is the number of audit entries that the engine keeps in memory. The entries need a few
// megabytes of memory.
const auditKeep = 16_384

// ledger contains the audit trail (the newest API calls) and the bill (the number of calls of each
// caller). The engine keeps the ledger only in memory, because a call that only reads must not
// cause a write to the store. After a restart the ledger is empty.
type ledger struct {
	mu    sync.Mutex
	ring  []cloudsim.AuditEntry
	base  uint64        // the first entry after the start of the cloud has the number base+1; each start sets a higher base
	total uint64        // number of entries since the start; if ring is full, ring[total % len] is the oldest entry
	added chan struct{} // the next call of Record closes this channel; nil if no watch waits for the next call
	from  time.Time
	rows  map[billKey]*cloudsim.BillCounts
}

type billKey struct{ caller, operation string }

// Record adds a finished call to the audit trail and the bill. It returns the entry with its
// number.
func (ac *access) Record(entry cloudsim.AuditEntry) cloudsim.AuditEntry {
	l := &ac.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	entry.Number = l.base + l.total + 1
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
	if l.added != nil {
		close(l.added)
		l.added = nil
	}
	return entry
}

// checkNumber returns Gone if entries after the given number are no longer in memory. It also
// returns Gone if the given number is higher than the number of the newest entry. The caller must
// hold the lock of the ledger.
func (l *ledger) checkNumber(number uint64) error {
	last := l.base + l.total
	if first := last - uint64(len(l.ring)) + 1; number < first-1 {
		return cloudsim.Errorf(cloudsim.Gone, "some calls after number %d are no longer in memory; the audit trail begins with number %d: list again, and watch from the number that the list returns", number, first)
	}
	if number > last {
		return cloudsim.Errorf(cloudsim.Gone, "number %d does not exist yet; the audit trail ends at number %d: list again, and watch from the number that the list returns", number, last)
	}
	return nil
}

// read returns a page of the entries that match the options o and that come after the given number.
// The result lastChecked is the number of the last checked entry. The result hasMore is true if
// more entries follow. If number is 0, read begins with the oldest entry in memory.
func (l *ledger) read(number uint64, o cloudsim.AuditOptions) (lines []cloudsim.AuditLine, lastChecked uint64, hasMore bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.base + l.total
	if number == 0 {
		number = last - uint64(len(l.ring))
	}
	if err := l.checkNumber(number); err != nil {
		return nil, number, false, err
	}
	for lastChecked = number; lastChecked < last && len(lines) < cloudsim.DefaultPageSize; lastChecked++ {
		if entry := l.ring[(lastChecked-l.base)%auditKeep]; o.Covers(entry) {
			lines = append(lines, cloudsim.AuditLine{AuditEntry: &entry})
		}
	}
	return lines, lastChecked, lastChecked < last, nil
}

// nextRecord returns a channel that the next call of Record closes.
func (l *ledger) nextRecord() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.added == nil {
		l.added = make(chan struct{})
	}
	return l.added
}

// WatchAudit yields the calls that match the options o and that come after the number o.After, in
// the order of their numbers, until ctx ends. If o.After is 0, WatchAudit begins with the oldest
// call in memory.
//
// WatchAudit also yields bookmarks. A bookmark is an item that contains only a number. A later
// watch can continue from this number. The first bookmark follows the calls that are already in
// memory. After this bookmark, WatchAudit yields one bookmark per bookmarkInterval. If
// bookmarkInterval is 0, it yields no bookmarks.
//
// Before each page of calls and each bookmark, WatchAudit checks whether the caller may still
// watch. It yields an error at most once, as the last item:
//   - Gone: calls after o.After are no longer in memory, for example because the cloud has
//     restarted.
//   - Unauthenticated: the caller's credential is no longer valid.
//   - Denied: the caller may no longer watch.
func (e *Engine) WatchAudit(ctx context.Context, o cloudsim.AuditOptions, bookmarkInterval time.Duration) iter.Seq2[cloudsim.AuditLine, error] {
	return func(yield func(cloudsim.AuditLine, error) bool) {
		number := o.After
		read := func() (lines []cloudsim.AuditLine, more bool, err error) {
			call, err := callOf(ctx)
			if err != nil {
				return nil, false, err
			}
			if err := e.store.View(call.stillMay); err != nil {
				return nil, false, err
			}
			lines, number, more, err = e.ledger.read(number, o)
			return lines, more, err
		}
		mark := func() cloudsim.AuditLine { return cloudsim.AuditLine{Bookmark: number} }
		watch(ctx, &e.watchShares, bookmarkInterval, e.ledger.nextRecord, read, mark)(yield)
	}
}

// storedEntries returns the entries in memory, oldest first. The caller must
// hold the lock of the ledger.
func (l *ledger) storedEntries() []cloudsim.AuditEntry {
	if len(l.ring) < auditKeep {
		return l.ring
	}
	oldest := l.total % auditKeep
	return slices.Concat(l.ring[oldest:], l.ring[:oldest])
}

func (l *ledger) ofRequest(id string) (all []cloudsim.AuditEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, entry := range l.storedEntries() {
		if entry.RequestID == id {
			all = append(all, entry)
		}
	}
	return all
}

// Audit returns the audit entries in memory that match the options o. Like WatchAudit, Audit
// returns Gone if o.After is not 0 and calls after o.After are no longer in memory.
func (ac *access) Audit(_ context.Context, o cloudsim.AuditOptions) (cloudsim.AuditTrail, error) {
	l := &ac.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	all := cloudsim.AuditTrail{Items: []cloudsim.AuditEntry{}, Dropped: l.total - uint64(len(l.ring)), Last: l.base + l.total}
	if o.After != 0 {
		if err := l.checkNumber(o.After); err != nil {
			return all, err
		}
	}
	for _, entry := range l.storedEntries() {
		if entry.Number > o.After && o.Covers(entry) {
			all.Items = append(all.Items, entry)
		}
	}
	if o.Limit > 0 && len(all.Items) > o.Limit {
		all.Items = all.Items[len(all.Items)-o.Limit:]
	}
	return all, nil
}

// Bill sums the calls that match the options o. If o.Since is zero, Bill sums all calls since the
// last reset, or since the start of the cloud. Otherwise Bill sums the calls since o.Since that are
// still in memory. Newer calls replace old calls in memory. If they may have replaced calls since
// o.Since, the field Complete of the result is false. A restart of the cloud also removes calls
// from memory, but does not make Complete false.
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
		kept := l.storedEntries()
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

// ResetBill sets all sums of the bill to zero. The new bill begins at the present time. The audit
// trail does not change.
func (ac *access) ResetBill(context.Context) error {
	now := ac.Now()
	l := &ac.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows, l.from = nil, now
	return nil
}
