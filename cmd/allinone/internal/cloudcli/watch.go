package cloudcli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// These are the shortest and the longest delay before keepWatching calls startWatch again.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// follow watches the cloud and calls handle for every event after o.Since. It stores the revision
// of the last event or bookmark. After an outage, it continues after this revision, so it omits no
// events. While no event matches o, bookmarks advance the stored revision. Without bookmarks, the
// revision could become so old that the journal no longer contains the next events. follow returns
// the result of keepWatching.
func follow(ctx context.Context, c *cli.Connection, cl *client.Client, o cloudsim.WatchOptions, handle func(cloudsim.Event) error) error {
	o.Bookmark = time.Minute // any value enables bookmarks: the cloud chooses the interval; see WatchOptions
	return keepWatching(ctx, c, func() iter.Seq2[cloudsim.Event, error] { return cl.Watch(ctx, o) }, func(ev cloudsim.Event) error {
		o.Since = ev.Rev
		if ev.Type == cloudsim.EventBookmark {
			return nil
		}
		return handle(ev)
	})
}

// keepWatching calls startWatch, and calls handle for every item of the watch. If the cloud is
// unavailable, keepWatching calls startWatch again after a delay. startWatch must then return a
// watch that continues after the last item that handle got. Otherwise handle misses items or gets
// items again. keepWatching returns nil when ctx ends. It returns an error if handle fails, if the
// cloud no longer has the next items (Gone), or if the cloud refuses the watch.
func keepWatching[T any](ctx context.Context, c *cli.Connection, startWatch func() iter.Seq2[T, error], handle func(T) error) error {
	wait := firstRetry
	for {
		var broke error
		for item, err := range startWatch() {
			if err != nil {
				broke = err
				break
			}
			if err := handle(item); err != nil {
				return err
			}
			wait = firstRetry
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

type change[T any] struct {
	event cloudsim.Event
	thing T
}

// listWatch prints a list of resources, and then the changes of these resources.
type listWatch[T cloudsim.Resource, ID ~string] struct {
	kind  kind[T, ID]
	where cloudsim.ListOptions
	print func([]change[T]) error
	// printed contains the resources that listWatch has printed. The keys are the ids of the
	// resources. listWatch omits an event if the resource in this map has the event's revision or a
	// later revision. If a resource in this map no longer matches the filters, listWatch prints
	// this change and removes the resource from the map.
	printed map[string]T
}

// watchList prints the resources of the kind k, and then every change of these resources, until
// ctx ends.
func watchList[T cloudsim.Resource, ID ~string](ctx context.Context, c *cli.Connection, cl *client.Client, k kind[T, ID], p cli.Printer[T], where cloudsim.ListOptions) error {
	w := listWatch[T, ID]{kind: k, where: where, print: changePrinter(p).printAll, printed: map[string]T{}}
	for {
		rev, err := w.printDifferences(ctx, cl)
		if err != nil {
			return err
		}
		o := cloudsim.WatchOptions{Since: rev, Kinds: []cloudsim.ResourceKind{k.kind}}
		if err := follow(ctx, c, cl, o, w.handle); !errors.Is(err, cloudsim.Gone) {
			return err
		}
		fmt.Fprintln(c.Stderr, "the cloud no longer stores some events; listing again")
	}
}

// printDifferences requests the list and compares it with the resources in w.printed. It prints the
// new, changed and deleted resources. It returns the revision at which a watch must start.
func (w *listWatch[T, ID]) printDifferences(ctx context.Context, cl *client.Client) (uint64, error) {
	things, rev, err := w.kind.all(ctx, cl, w.where)
	if err != nil {
		return 0, err
	}
	var news []change[T]
	exists := map[string]bool{}
	for _, t := range things {
		id := w.kind.id(t)
		exists[id] = true
		if have, ok := w.printed[id]; !ok || have.Head().Revision != t.Head().Revision {
			ev, err := w.newEvent(t, cloudsim.EventPut)
			if err != nil {
				return 0, err
			}
			news = append(news, change[T]{ev, t})
			w.printed[id] = t
		}
	}
	for id, t := range w.printed {
		if !exists[id] {
			ev, err := w.newEvent(t, cloudsim.EventDelete)
			if err != nil {
				return 0, err
			}
			news = append(news, change[T]{ev, t})
			delete(w.printed, id)
		}
	}
	return rev, w.print(news)
}

// newEvent returns an event for the resource t. printDifferences needs this event for each change
// that it finds, because a list contains no events.
func (w *listWatch[T, ID]) newEvent(t T, typ cloudsim.EventType) (cloudsim.Event, error) {
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
	have, shown := w.printed[ev.ID]
	if shown && have.Head().Revision >= ev.Rev {
		return nil // listWatch has already printed this change
	}
	selected := w.isSelected(ev, t.Head())
	if !selected && !shown {
		return nil
	}
	if selected && ev.Type != cloudsim.EventDelete {
		w.printed[ev.ID] = t
	} else {
		delete(w.printed, ev.ID)
	}
	return w.print([]change[T]{{ev, t}})
}

// isSelected reports whether the resource of an event matches the filters of the list. It
// uses the same rules as the cloud.
func (w *listWatch[T, ID]) isSelected(ev cloudsim.Event, m cloudsim.Meta) bool {
	for key, want := range w.where.Labels {
		if have, ok := m.Labels[key]; !ok || have != want {
			return false
		}
	}
	if o := w.where; o.Zone == "" && o.Source == "" && o.Network == "" && len(o.Instances) == 0 && o.Kind == "" && o.Target == "" && o.State == "" {
		return true
	}
	var in struct {
		Zone           string   `json:"zone"`
		ReplicaZones   []string `json:"replicaZones"`
		Disk           string   `json:"disk"`
		SourceDisk     string   `json:"sourceDisk"`
		SourceSnapshot string   `json:"sourceSnapshot"`
		Network        string   `json:"network"`
		Kind           string   `json:"kind"`
		Target         string   `json:"target"`
		State          string   `json:"state"`

		Attachments       []cloudsim.Attachment       `json:"attachments"`
		NetworkInterfaces []cloudsim.NetworkInterface `json:"networkInterfaces"`
	}
	if err := json.Unmarshal(ev.Object, &in); err != nil {
		return false
	}
	inZone := w.where.Zone == "" || slices.Contains(append(in.ReplicaZones, in.Zone), w.where.Zone)
	ofSource := w.where.Source == "" || slices.Contains([]string{in.Disk, in.SourceDisk, in.SourceSnapshot}, w.where.Source)
	inNetwork := w.where.Network == "" || in.Network == string(w.where.Network) ||
		slices.ContainsFunc(in.NetworkInterfaces, func(f cloudsim.NetworkInterface) bool { return f.Network == w.where.Network })
	ofInstance := len(w.where.Instances) == 0 || slices.ContainsFunc(in.Attachments, func(a cloudsim.Attachment) bool { return slices.Contains(w.where.Instances, a.Instance) })
	ofKind := w.where.Kind == "" || in.Kind == w.where.Kind
	onTarget := w.where.Target == "" || in.Target == w.where.Target
	inState := w.where.State == "" || in.State == w.where.State
	return inZone && ofSource && inNetwork && ofInstance && ofKind && onTarget && inState
}

// printStream prints objects one after the other, as the command gets them.
type printStream[T any] struct {
	cli.Printer[T]
	rowsSoFar *cli.Table
	event     func(T) any // returns the value to print in JSON and YAML
}

func newStream[T any](p cli.Printer[T], event func(T) any) printStream[T] {
	return printStream[T]{p, p.Table(), event}
}

// printAll prints the given objects. In JSON each object is one line, and in YAML each
// object is one document.
func (s printStream[T]) printAll(objects []T) error {
	switch s.Format {
	case cli.FormatTable, cli.FormatWide:
		return s.rowsSoFar.Print(s.Rows(objects))
	case cli.FormatName:
		return s.Names(objects)
	}
	for _, t := range objects {
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

// changePrinter returns a stream that prints changes. The table of the stream has a column for
// the type of the event, followed by the columns of p.
func changePrinter[T any](p cli.Printer[T]) printStream[change[T]] {
	cols := []cli.Column[change[T]]{{Head: "EVENT", Cell: func(c change[T]) string { return string(c.event.Type) }}}
	for _, col := range p.Columns {
		cols = append(cols, cli.Column[change[T]]{Head: col.Head, Wide: col.Wide, Cell: func(c change[T]) string { return col.Cell(c.thing) }})
	}
	return newStream(cli.Printer[change[T]]{
		Output: p.Output, Writer: p.Writer, Columns: cols,
		ID: func(c change[T]) string { return c.event.ID },
	}, func(c change[T]) any { return c.event })
}
