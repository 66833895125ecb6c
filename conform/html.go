package conform

import (
	"bytes"
	_ "embed"
	"html/template"
	"io"
	"strings"
	"time"
)

const (
	// maxEvidenceHTML is the maximum length of the evidence of all failures together, in bytes
	// after the escaping of special characters.
	maxEvidenceHTML = 300_000
	// maxReasonHTML is the maximum length of a reason, in bytes after the escaping of special
	// characters.
	maxReasonHTML = 1000
)

//go:embed report.gohtml
var htmlSource string

var htmlTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"lower":   func(v Verdict) string { return strings.ToLower(string(v)) },
	"seconds": func(d time.Duration) string { return d.Round(100 * time.Millisecond).String() },
	"date":    func(t time.Time) string { return t.Format(time.RFC3339) },
}).Parse(htmlSource))

// WriteHTML writes the report as one HTML file without scripts and without external resources. For
// each failed check, the file shows the timeline of the Nodes and Services beside the calls of the
// CCM, and the CCM's log. The file has at most 500 KB, so WriteHTML omits the end of long evidence.
func (r Report) WriteHTML(w io.Writer) error {
	type group struct {
		Title string
		Lines string
	}
	type failure struct {
		Result
		Groups []group
	}
	page := struct {
		Report
		Counts   map[Verdict]int
		Failures []failure
	}{Report: r, Counts: map[Verdict]int{}}
	failed := 0
	for _, x := range r.Results {
		page.Counts[x.Verdict]++
		if x.HasEvidence() {
			failed++
		}
	}
	page.Results = nil
	for _, x := range r.Results {
		x.Reason = shorten(x.Reason, maxReasonHTML)
		page.Results = append(page.Results, x)
		if !x.HasEvidence() {
			continue
		}
		f := failure{Result: x}
		for _, g := range []struct {
			title string
			lines []string
		}{{"Nodes and Services", x.Timeline}, {"Calls of the CCM to the cloud", x.Calls}, {"Log of the CCM", x.Log}} {
			if len(g.lines) > 0 {
				f.Groups = append(f.Groups, group{g.title, shorten(strings.Join(g.lines, "\n"), maxEvidenceHTML/failed/3)})
			}
		}
		page.Failures = append(page.Failures, f)
	}
	var b bytes.Buffer
	if err := htmlTemplate.Execute(&b, page); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// HasEvidence reports whether the HTML report shows the evidence of the result.
func (r Result) HasEvidence() bool { return r.Verdict == Fail || r.Verdict == KnownIssue }

// shorten returns a text unchanged if it has at most n bytes after the HTML escaping. Otherwise
// shorten cuts the end of the text until the text fits, and then adds a note.
func shorten(text string, n int) string {
	if len(template.HTMLEscapeString(text)) <= n {
		return text
	}
	for len(template.HTMLEscapeString(text)) > n {
		text = text[:len(text)*9/10]
	}
	return strings.ToValidUTF8(text, "") + "\n… the rest is in report.json"
}
