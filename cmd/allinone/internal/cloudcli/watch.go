package cloudcli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// Shortest and longest delay between two attempts to connect again to a cloud.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// follow calls handle for every event after o.Since. It returns nil when ctx ends. It returns
// an error if handle fails, the events are Gone, or the cloud refuses the watch. If the cloud
// does not answer, follow tries again and misses no event.
func follow(ctx context.Context, c *cli.Connection, cl *client.Client, o cloudsim.WatchOptions, handle func(cloudsim.Event) error) error {
	wait := firstRetry
	for {
		var broke error
		for ev, err := range cl.Watch(ctx, o) {
			if err != nil {
				broke = err
				break
			}
			if err := handle(ev); err != nil {
				return err
			}
			o.Since, wait = ev.Rev, firstRetry
		}
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(broke, cloudsim.Unavailable) {
			return broke
		}
		if wait == firstRetry {
			fmt.Fprintf(c.Stderr, "%v; trying again\n", broke)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
			wait = min(2*wait, lastRetry)
		}
	}
}

// change is a resource with the event that changed it.
type change[T any] struct {
	event cloudsim.Event
	thing T
}

// listWatch prints a list and then its changes.
type listWatch[T cloudsim.Resource, ID ~string] struct {
	kind  kind[T, ID]
	where cloudsim.ListOptions
	print func([]change[T]) error
	// seen contains the printed resources by id. With seen, listWatch skips events
	// that the list already showed, and prints resources that no longer match the filters.
	seen map[string]T
}

// watchList prints the resources in k's list and then every change, until ctx ends.
func watchList[T cloudsim.Resource, ID ~string](ctx context.Context, c *cli.Connection, cl *client.Client, k kind[T, ID], p cli.Printer[T], where cloudsim.ListOptions) error {
	w := listWatch[T, ID]{kind: k, where: where, print: changePrinter(p).changes, seen: map[string]T{}}
	for {
		rev, err := w.list(ctx, cl)
		if err != nil {
			return err
		}
		o := cloudsim.WatchOptions{Since: rev, Kinds: []cloudsim.ResourceKind{k.kind}}
		if err := follow(ctx, c, cl, o, w.handle); !errors.Is(err, cloudsim.Gone) {
			return err
		}
		fmt.Fprintln(c.Stderr, "some events are no longer kept; listing again")
	}
}

// list prints the changes since the last list, including deleted resources. It returns the
// revision to watch from.
func (w *listWatch[T, ID]) list(ctx context.Context, cl *client.Client) (uint64, error) {
	things, rev, err := w.kind.all(ctx, cl, w.where)
	if err != nil {
		return 0, err
	}
	var news []change[T]
	there := map[string]bool{}
	for _, t := range things {
		id := w.kind.id(t)
		there[id] = true
		if have, ok := w.seen[id]; !ok || have.Head().Revision != t.Head().Revision {
			ev, err := w.event(t, cloudsim.EventPut)
			if err != nil {
				return 0, err
			}
			news = append(news, change[T]{ev, t})
			w.seen[id] = t
		}
	}
	for id, t := range w.seen {
		if !there[id] {
			ev, err := w.event(t, cloudsim.EventDelete)
			if err != nil {
				return 0, err
			}
			news = append(news, change[T]{ev, t})
			delete(w.seen, id)
		}
	}
	return rev, w.print(news)
}

// event makes the event for a resource that list found to be new, changed or deleted.
func (w *listWatch[T, ID]) event(t T, typ cloudsim.EventType) (cloudsim.Event, error) {
	object, err := json.Marshal(t)
	m := t.Head()
	return cloudsim.Event{
		Rev: m.Revision, Time: m.UpdatedAt, Type: typ, Kind: w.kind.kind, ID: w.kind.id(t),
		Project: m.Project, Object: object,
	}, err
}

func (w *listWatch[T, ID]) handle(ev cloudsim.Event) error {
	var t T
	if err := json.Unmarshal(ev.Object, &t); err != nil {
		return fmt.Errorf("event %d: %w", ev.Rev, err)
	}
	have, shown := w.seen[ev.ID]
	if shown && have.Head().Revision >= ev.Rev {
		return nil // the list already showed this change
	}
	selected := w.selected(ev, t.Head())
	if !selected && !shown {
		return nil
	}
	if selected && ev.Type != cloudsim.EventDelete {
		w.seen[ev.ID] = t
	} else {
		delete(w.seen, ev.ID)
	}
	return w.print([]change[T]{{ev, t}})
}

// selected applies the list's filters to an event, in the same way as the cloud.
func (w *listWatch[T, ID]) selected(ev cloudsim.Event, m cloudsim.Meta) bool {
	for key, want := range w.where.Labels {
		if have, ok := m.Labels[key]; !ok || have != want {
			return false
		}
	}
	if w.where.Zone == "" && w.where.Source == "" && w.where.Network == "" {
		return true
	}
	var in struct {
		Zone           string   `json:"zone"`
		ReplicaZones   []string `json:"replicaZones"`
		Disk           string   `json:"disk"`
		SourceDisk     string   `json:"sourceDisk"`
		SourceSnapshot string   `json:"sourceSnapshot"`
		Network        string   `json:"network"`
	}
	if err := json.Unmarshal(ev.Object, &in); err != nil {
		return false
	}
	inZone := w.where.Zone == "" || slices.Contains(append(in.ReplicaZones, in.Zone), w.where.Zone)
	ofSource := w.where.Source == "" || slices.Contains([]string{in.Disk, in.SourceDisk, in.SourceSnapshot}, w.where.Source)
	inNetwork := w.where.Network == "" || in.Network == string(w.where.Network)
	return inZone && ofSource && inNetwork
}

// stream prints rows as they arrive.
type stream[T any] struct {
	cli.Printer[T]
	rowsSoFar *cli.Table
	event     func(T) any // the value for JSON and YAML
}

func newStream[T any](p cli.Printer[T], event func(T) any) stream[T] {
	return stream[T]{p, p.Table(), event}
}

// changes prints things: one line each in JSON, one document each in YAML.
func (s stream[T]) changes(things []T) error {
	switch s.Format {
	case cli.FormatTable, cli.FormatWide:
		return s.rowsSoFar.Print(s.Rows(things))
	case cli.FormatName:
		return s.Names(things)
	}
	for _, t := range things {
		if s.Format == cli.FormatYAML {
			if _, err := fmt.Fprintln(s.Writer, "---"); err != nil {
				return err
			}
			if err := s.Encode(s.event(t)); err != nil {
				return err
			}
			continue
		}
		line, err := json.Marshal(s.event(t))
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(s.Writer, "%s\n", line); err != nil {
			return err
		}
	}
	return nil
}

// changePrinter returns a stream that prints changes with the columns of p and a column for
// the type of the event.
func changePrinter[T any](p cli.Printer[T]) stream[change[T]] {
	cols := []cli.Column[change[T]]{{Head: "EVENT", Cell: func(c change[T]) string { return string(c.event.Type) }}}
	for _, col := range p.Columns {
		cols = append(cols, cli.Column[change[T]]{Head: col.Head, Wide: col.Wide, Cell: func(c change[T]) string { return col.Cell(c.thing) }})
	}
	return newStream(cli.Printer[change[T]]{
		Output: p.Output, Writer: p.Writer, Columns: cols,
		ID: func(c change[T]) string { return c.event.ID },
	}, func(c change[T]) any { return c.event })
}
