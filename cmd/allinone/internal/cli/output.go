package cli

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

type outputFormat string

const (
	FormatTable outputFormat = "table"
	FormatWide  outputFormat = "wide" // a table with all columns
	FormatJSON  outputFormat = "json" // the objects of the API; a list of objects is an array
	FormatYAML  outputFormat = "yaml" // the content of FormatJSON, in YAML
	FormatName  outputFormat = "name" // one id per line
)

var formats = []outputFormat{FormatTable, FormatWide, FormatJSON, FormatYAML, FormatName}

// String, Set and Type implement pflag.Value.
func (f *outputFormat) String() string { return string(*f) }
func (f *outputFormat) Type() string   { return "FORMAT" }
func (f *outputFormat) Set(s string) error {
	if !slices.Contains(formats, outputFormat(s)) {
		return fmt.Errorf("want one of %s", Join(formats))
	}
	*f = outputFormat(s)
	return nil
}

// Join returns the words in one string, separated by commas.
func Join[S ~string](all []S) string {
	words := make([]string, len(all))
	for i, s := range all {
		words[i] = string(s)
	}
	return strings.Join(words, ", ")
}

// Output contains the flags that choose the output format.
type Output struct {
	Format    outputFormat
	noHeaders bool
}

// Flags adds the flags for the output format to cmd.
func (o *Output) Flags(cmd *cobra.Command) {
	o.Format = FormatTable
	cmd.Flags().VarP(&o.Format, "output", "o", "output format: "+Join(formats))
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "print tables without the header line")
	_ = cmd.RegisterFlagCompletionFunc("output", Fixed(formats...))
}

// Column is one column of a table.
type Column[T any] struct {
	Head string
	Wide bool // the column appears only in FormatWide
	Cell func(T) string
}

// Printer prints objects of one kind.
type Printer[T any] struct {
	Output
	Writer  io.Writer
	Columns []Column[T]
	ID      func(T) string
}

// List prints the given objects. In JSON and YAML it prints one array.
func (p Printer[T]) List(objects []T) error {
	if objects == nil {
		objects = []T{}
	}
	switch p.Format {
	case FormatJSON, FormatYAML:
		return p.Encode(objects)
	case FormatName:
		return p.Names(objects)
	}
	return p.Table().Print(p.Rows(objects))
}

// One prints a single object. In JSON and YAML it prints the object itself, and not an array with
// one object.
func (p Printer[T]) One(thing T) error {
	if p.Format == FormatJSON || p.Format == FormatYAML {
		return p.Encode(thing)
	}
	return p.List([]T{thing})
}

// Names prints the id of each object on a separate line.
func (p Printer[T]) Names(things []T) error {
	for _, t := range things {
		if _, err := fmt.Fprintln(p.Writer, p.ID(t)); err != nil {
			return err
		}
	}
	return nil
}

// Encode prints v as JSON, or as YAML if the format is YAML.
func (p Printer[T]) Encode(v any) error {
	if p.Format == FormatYAML {
		raw, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = p.Writer.Write(raw)
		return err
	}
	enc := json.NewEncoder(p.Writer)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func (p Printer[T]) shownColumns() []Column[T] {
	return slices.DeleteFunc(slices.Clone(p.Columns), func(c Column[T]) bool { return c.Wide && p.Format != FormatWide })
}

// Table returns an empty table with the columns of the output format.
func (p Printer[T]) Table() *Table {
	t := &Table{w: p.Writer}
	if !p.noHeaders {
		for _, c := range p.shownColumns() {
			t.head = append(t.head, c.Head)
		}
	}
	return t
}

// Rows returns one row of cells for each object, with the columns of the output format.
func (p Printer[T]) Rows(things []T) [][]string {
	cols := p.shownColumns()
	rows := make([][]string, len(things))
	for i, thing := range things {
		for _, c := range cols {
			rows[i] = append(rows[i], c.Cell(thing))
		}
	}
	return rows
}

// Table writes rows with aligned columns. A caller may call Print many times. If a later call
// prints a cell that is wider than its column, the column becomes wider. A column never becomes
// narrower.
type Table struct {
	w      io.Writer
	head   []string // Print prints the head once, before the first rows
	widths []int
}

// Print prints rows. The first call also prints the header above the rows.
func (t *Table) Print(rows [][]string) error {
	if t.head != nil {
		rows = append([][]string{t.head}, rows...)
		t.head = nil
	}
	for _, row := range rows {
		for i, cell := range row {
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			row[i] = Printable(cell)
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

// Printable returns the text of a table cell. It replaces control characters, because they could
// start a new line or control the terminal. For an empty cell it returns "-".
func Printable(cell string) string {
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

// Age returns the time since t as short text with a unit, for example 5m.
func Age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(0, time.Since(t)))
}

func labelCell(labels map[string]string) string {
	words := make([]string, 0, len(labels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, k+"="+labels[k])
	}
	return strings.Join(words, ",")
}

// MetaColumns returns the columns that all kinds have. In a table, these columns come last.
func MetaColumns[T cloudsim.Resource]() []Column[T] {
	return []Column[T]{
		{Head: "AGE", Cell: func(t T) string { return Age(t.Head().CreatedAt) }},
		{Head: "PROJECT", Wide: true, Cell: func(t T) string { return string(t.Head().Project) }},
		{Head: "LABELS", Wide: true, Cell: func(t T) string { return labelCell(t.Head().Labels) }},
	}
}
