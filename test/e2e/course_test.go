package e2e

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/docs/labs"
	"github.com/cloudsim-dev/allinone/lab"
	"github.com/cloudsim-dev/allinone/lab/course"
	"github.com/cloudsim-dev/allinone/lab/process"
)

// courseTimeout is the time limit for each wait of a lab page. It is long enough for a busy
// machine.
const courseTimeout = 90 * time.Second

// TestCourse does every lab of docs/labs that has hollow nodes, as a user would. It runs the
// commands of each page and compares their output with the page. The command verify must fail
// before each step and pass after the step. Then the test resets the lab, and does the lab again
// with the command solve.
func TestCourse(t *testing.T) {
	t.Parallel() // this test mostly waits
	l := newLab(t)
	all, err := course.Read(labs.Pages)
	if err != nil {
		t.Fatal(err)
	}
	l.must(l.allinone, "up", "--detach", "--port-base", "0")
	for _, page := range all {
		if page.Nodes != string(lab.Hollow) || t.Failed() {
			continue
		}
		l.walk(t, []step{
			{page.ID + " typed", func(l *labRun, t *testing.T) { l.takeLab(t, page, l.typeStep) }},
			{page.ID + " solved", func(l *labRun, t *testing.T) { l.takeLab(t, page, l.solveStep) }},
		})
	}
}

// takeLab starts a lab, calls stepFn for each step, and resets the lab afterward.
func (l *labRun) takeLab(t *testing.T, page course.Lab, stepFn func(*testing.T, course.Step)) {
	l.lab("start", page.ID)
	for _, s := range page.Steps {
		l.checkVerifyFails(s)
		stepFn(t, s)
		if len(s.Checks) > 0 {
			if output := l.lab("verify", "--wait", courseTimeout.String()); strings.Count(output, "✔ ") != len(s.Checks) {
				t.Errorf("step %q: verify did not confirm all %d checks:\n%s", s.Title, len(s.Checks), output)
			}
		}
		l.lab("next")
	}
	if list := l.lab("list"); !regexp.MustCompile(`(?m)^` + page.ID + ` .* done$`).MatchString(list) {
		t.Errorf("%s is not done:\n%s", page.ID, list)
	}
	if startOutput := l.lab("start", page.ID); !strings.Contains(startOutput, "All changes of lab "+page.ID+" are undone") || !strings.Contains(startOutput, "step 1 of ") {
		t.Errorf("a complete lab did not start again: %s", startOutput)
	}
	began := time.Now()
	t.Log(l.lab("reset"))
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the reset took %s", took)
	}
}

func (l *labRun) checkVerifyFails(s course.Step) {
	l.t.Helper()
	if len(s.Checks) == 0 {
		return
	}
	output, err := l.runProgram(l.allinone, "lab", "verify", "--wait", "0s")
	if err == nil {
		l.t.Fatalf("step %q: verify succeeds before the step is done:\n%s", s.Title, output)
	}
	if !strings.Contains(output, "    saw  ") || !strings.Contains(output, "    expected  ") {
		l.t.Errorf("step %q: verify does not print what it found: %v\n%s", s.Title, err, output)
	}
}

func (l *labRun) lab(args ...string) string {
	l.t.Helper()
	return l.must(l.allinone, append([]string{"lab"}, args...)...)
}

func (l *labRun) typeStep(t *testing.T, s course.Step) {
	for _, c := range s.Do {
		if _, err := c.Run(l.t.Context(), course.NewShell(process.Dir(l.dir).EnvFile()), courseTimeout); err != nil {
			t.Fatalf("step %q: the output differs from the page:\n%v", s.Title, err)
		}
	}
}

func (l *labRun) solveStep(_ *testing.T, s course.Step) {
	if len(s.Checks) > 0 {
		l.lab("solve")
	}
}
