package conform

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Report contains the results of a run.
type Report struct {
	Run        string    `json:"run"`
	Provider   string    `json:"provider"`
	Kubernetes string    `json:"kubernetes,omitempty"` // version of the API server; empty for a CSI driver
	Began      time.Time `json:"began"`
	// Incomplete is the reason why the run ended early, for example that the driver does not
	// answer. It is empty after a complete run.
	Incomplete string   `json:"incomplete,omitempty"`
	Results    []Result `json:"results"`
	// Budgets maps an action to the number of calls that the CCM makes for this action. For a CSI
	// driver, the key is, for example, "100 CreateVolume". The value of this key is the average
	// number of calls to the cloud for 100 successful CreateVolume RPCs. If the run did not count
	// the calls, Budgets is empty.
	Budgets map[string]int `json:"budgets,omitempty"`
}

// Failed returns two numbers: the failed checks of the level Must, and those of the level Should.
func (r Report) Failed() (must, should int) {
	for _, x := range r.Results {
		switch {
		case x.Verdict != Fail:
		case x.Level == Must:
			must++
		default:
			should++
		}
	}
	return must, should
}

// sort puts the results into the order of the list that the function Checks returns.
func (r *Report) sort() {
	position := map[string]int{}
	for i, c := range Checks() {
		position[c.ID] = i
	}
	slices.SortFunc(r.Results, func(a, b Result) int { return position[a.ID] - position[b.ID] })
}

// WriteJSON writes the report as one JSON object.
func (r Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// These types are the elements of JUnit's XML format.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Seconds  float64     `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string       `xml:"name,attr"`
		Class   string       `xml:"classname,attr"`
		Seconds float64      `xml:"time,attr"`
		Failure *junitReason `xml:"failure,omitempty"`
		Skipped *junitReason `xml:"skipped,omitempty"`
	}
	junitReason struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes the report in JUnit's XML format. The suite has one test case for each check. A
// check with a known issue becomes a skipped test case. After a run that ended early, the suite
// also has a failed test case with the reason.
func (r Report) WriteJUnit(w io.Writer) error {
	s := junitSuite{Name: "cloudconform " + r.Provider, Tests: len(r.Results)}
	for _, x := range r.Results {
		c := junitCase{Name: x.ID, Class: string(x.Level), Seconds: x.Took.Seconds()}
		reason := &junitReason{Message: x.Reason, Text: strings.Join(x.Timeline, "\n")}
		switch x.Verdict {
		case Fail:
			c.Failure = reason
			s.Failures++
		case Skip, KnownIssue:
			c.Skipped = reason
			s.Skipped++
		case Pass:
		}
		s.Seconds += c.Seconds
		s.Cases = append(s.Cases, c)
	}
	if r.Incomplete != "" {
		s.Cases = append(s.Cases, junitCase{Name: "complete run", Class: string(Must), Failure: &junitReason{Message: r.incompleteText()}})
		s.Tests++
		s.Failures++
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	return e.Encode(junitSuites{Suites: []junitSuite{s}})
}

func (r Report) incompleteText() string { return "The run is not complete: " + r.Incomplete }

// WriteMarkdown writes the report as a Markdown table. After the table, it writes the timeline of
// each failed check and of each known issue. After a run that ended early, it writes the reason
// before the table.
func (r Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	about := r.Began.Format(time.RFC3339)
	if r.Kubernetes != "" {
		about = "Kubernetes " + r.Kubernetes + ", " + about
	}
	fmt.Fprintf(&b, "# Conformance of %s\n\n%s\n\n", r.Provider, about)
	if r.Incomplete != "" {
		fmt.Fprintf(&b, "%s\n\n", strings.ReplaceAll(r.incompleteText(), "\n", " "))
	}
	b.WriteString("| check | level | verdict | statement | reason |\n|---|---|---|---|---|\n")
	cell := strings.NewReplacer("|", `\|`, "\n", " ")
	for _, x := range r.Results {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", x.ID, x.Level, x.Verdict, cell.Replace(x.Title), cell.Replace(x.Reason))
	}
	for _, x := range r.Results {
		if len(x.Timeline) > 0 {
			fmt.Fprintf(&b, "\n## Timeline of %s\n\n```\n%s\n```\n", x.ID, strings.Join(x.Timeline, "\n"))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
