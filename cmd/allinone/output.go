package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// format is the output format of a command.
type format string

const (
	formatTable format = "table"
	formatWide  format = "wide" // a table with all columns
	formatJSON  format = "json" // the API's objects; a list is an array
	formatYAML  format = "yaml" // the same as JSON, in YAML
	formatName  format = "name" // one id per line
)

var formats = []format{formatTable, formatWide, formatJSON, formatYAML, formatName}

// String, Set and Type implement pflag.Value.
func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "FORMAT" }
func (f *format) Set(s string) error {
	if !slices.Contains(formats, format(s)) {
		return fmt.Errorf("want one of %s", join(formats))
	}
	*f = format(s)
	return nil
}

func join[S ~string](all []S) string {
	words := make([]string, len(all))
	for i, s := range all {
		words[i] = string(s)
	}
	return strings.Join(words, ", ")
}

// output contains the flags for the output format.
type output struct {
	format    format
	noHeaders bool
}

func (o *output) flags(cmd *cobra.Command) {
	o.format = formatTable
	cmd.Flags().VarP(&o.format, "output", "o", "how to print: "+join(formats))
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "print tables without their first line")
	_ = cmd.RegisterFlagCompletionFunc("output", fixed(formats...))
}

// column is one column of a table.
type column[T any] struct {
	head string
	wide bool // only in formatWide
	cell func(T) string
}

// printer prints things of one kind.
type printer[T any] struct {
	output
	w       io.Writer
	columns []column[T]
	id      func(T) string
}

// list prints things as one value. In JSON and YAML the value is an array.
func (p printer[T]) list(things []T) error {
	if things == nil {
		things = []T{}
	}
	switch p.format {
	case formatJSON, formatYAML:
		return p.encode(things)
	case formatName:
		return p.names(things)
	}
	return p.table().print(p.rows(things))
}

// one prints a single thing. In JSON and YAML the thing is not in an array.
func (p printer[T]) one(thing T) error {
	if p.format == formatJSON || p.format == formatYAML {
		return p.encode(thing)
	}
	return p.list([]T{thing})
}

func (p printer[T]) names(things []T) error {
	for _, t := range things {
		if _, err := fmt.Fprintln(p.w, p.id(t)); err != nil {
			return err
		}
	}
	return nil
}

func (p printer[T]) encode(v any) error {
	if p.format == formatYAML {
		raw, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = p.w.Write(raw)
		return err
	}
	enc := json.NewEncoder(p.w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// shown returns the columns of the chosen format.
func (p printer[T]) shown() []column[T] {
	return slices.DeleteFunc(slices.Clone(p.columns), func(c column[T]) bool { return c.wide && p.format != formatWide })
}

func (p printer[T]) table() *table {
	t := &table{w: p.w}
	if !p.noHeaders {
		for _, c := range p.shown() {
			t.head = append(t.head, c.head)
		}
	}
	return t
}

func (p printer[T]) rows(things []T) [][]string {
	cols := p.shown()
	rows := make([][]string, len(things))
	for i, thing := range things {
		for _, c := range cols {
			rows[i] = append(rows[i], c.cell(thing))
		}
	}
	return rows
}

// table writes aligned rows. Its method print may be called many times. Later rows keep the column widths
// of earlier rows, and a longer cell makes its column wider.
type table struct {
	w      io.Writer
	head   []string // printed once, before the first rows
	widths []int
}

func (t *table) print(rows [][]string) error {
	if t.head != nil {
		rows = append([][]string{t.head}, rows...)
		t.head = nil
	}
	for _, row := range rows {
		for i, cell := range row {
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			row[i] = printable(cell)
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell)+3))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(t.w, b.String())
	return err
}

// printable replaces control characters in a cell, so that the cell cannot break its line or
// control the terminal. An empty cell becomes "-".
func printable(cell string) string {
	if cell == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, cell)
}

// age returns the time since t in a readable unit.
func age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(0, time.Since(t)))
}

// labelCell returns labels in the form of the flags: KEY=VALUE, separated by commas.
func labelCell(labels map[string]string) string {
	words := make([]string, 0, len(labels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, k+"="+labels[k])
	}
	return strings.Join(words, ",")
}

// metaColumns are the last columns of every kind.
func metaColumns[T cloudsim.Resource]() []column[T] {
	return []column[T]{
		{head: "AGE", cell: func(t T) string { return age(t.Head().CreatedAt) }},
		{head: "PROJECT", wide: true, cell: func(t T) string { return string(t.Head().Project) }},
		{head: "LABELS", wide: true, cell: func(t T) string { return labelCell(t.Head().Labels) }},
	}
}
