package conform_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/conform"
)

func failedReport(n int, text string) conform.Report {
	r := conform.Report{Provider: text, Kubernetes: "v1.36.3", Run: "conform-abc", Incomplete: text, Began: time.Unix(0, 0).UTC()}
	lines := strings.Split(strings.Repeat(text+"\n", 200), "\n")
	for i := range n {
		r.Results = append(r.Results, conform.Result{ID: fmt.Sprintf("node.%d", i), Level: conform.Must, Title: text, Verdict: conform.Fail, Reason: strings.Repeat(text, 50), Timeline: lines, Calls: lines, Log: lines})
	}
	r.Results = append(r.Results, conform.Result{ID: "node.pass", Level: conform.Should, Verdict: conform.Pass})
	return r
}

func html(t *testing.T, r conform.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestHTML proves that the page contains the timeline, the calls and the log of a failed check. It
// also proves that the page has no section for a check that passed.
func TestHTML(t *testing.T) {
	r := failedReport(1, "x")
	r.Results[0].Timeline, r.Results[0].Calls, r.Results[0].Log = []string{"a Node"}, []string{"a call"}, []string{"a line"}
	page := html(t, r)
	for _, want := range []string{
		`<a href="#node.0">node.0</a>`, `<section id="node.0">`, ">a Node</pre>", ">a call</pre>", ">a line</pre>", `<span class="verdict fail">1 FAIL</span>`, `<span class="verdict pass">1 PASS</span>`,
		"The run is not complete: x",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	if strings.Contains(page, `section id="node.pass"`) {
		t.Error("the page has a section for a check that passed")
	}
}

// TestHTMLIsSafeAndSmall proves that the page escapes all texts, makes no request, and has at most
// 500 KB. It uses a report with one failure and a report with 60 failures. A real report has fewer
// than 60 failures, because the project has fewer than 60 checks.
func TestHTMLIsSafeAndSmall(t *testing.T) {
	const evil = `</pre><script src="https://example.com/a.js"></script><img src=x onerror="a()">'"&`
	for _, n := range []int{1, 60} {
		page := html(t, failedReport(n, evil))
		if len(page) > 500_000 {
			t.Errorf("%d failures: the page has %d bytes", n, len(page))
		}
		for _, forbidden := range []string{"<script", "<img", "<link", "@import", "url(", " src=\"", "href=\"http"} {
			if strings.Contains(page, forbidden) {
				t.Errorf("the page contains %s", forbidden)
			}
		}
		if !strings.Contains(page, `content="default-src 'none'; style-src 'unsafe-inline'"`) {
			t.Error("the page has no policy that forbids requests")
		}
	}
}

// TestHTMLContrast proves that each text color has the contrast of WCAG AA, 4.5:1, on both
// backgrounds of the light theme and on both backgrounds of the dark theme.
func TestHTMLContrast(t *testing.T) {
	source, err := os.ReadFile("report.gohtml")
	if err != nil {
		t.Fatal(err)
	}
	themes := regexp.MustCompile(`:root \{[^}]*\}`).FindAllString(string(source), -1)
	if len(themes) != 2 {
		t.Fatalf("got %d themes, want 2", len(themes))
	}
	for _, theme := range themes {
		colors := map[string]float64{}
		for _, m := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6})`).FindAllStringSubmatch(theme, -1) {
			colors[m[1]] = luminance(t, m[2])
		}
		for _, back := range []string{"bg", "box"} {
			for _, text := range []string{"text", "pass", "fail", "skip", "known-issue"} {
				a, b := colors[text], colors[back]
				if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < 4.5 {
					t.Errorf("%s on %s: got contrast %.1f, want 4.5: %s", text, back, ratio, theme)
				}
			}
		}
		a, b := colors["line"], colors["bg"]
		if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < 3 {
			t.Errorf("line on bg: got contrast %.1f, want 3: %s", ratio, theme)
		}
	}
}

// luminance returns the relative luminance of a color. See WCAG 2.2, relative luminance.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil {
		t.Fatal(err)
	}
	part := func(shift int) float64 {
		c := float64(n>>shift&0xff) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*part(16) + 0.7152*part(8) + 0.0722*part(0)
}
