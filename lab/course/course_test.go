package course_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cloudsim-dev/allinone/docs/labs"
	"github.com/cloudsim-dev/allinone/lab/course"
)

// page is a small lab. The character ~ stands for a backtick.
const page = `# 7. A page

5 minutes · hollow nodes · no root

## Why

Because.

~~~console begin
# nothing is there
$ ls
~~~

## 1. Look

See:

~~~console
$ echo one
one
~~~

## 2. Do

~~~console until
$ cat <<'END'
two
END
two
$ true \
-
~~~

~~~json
{"not": "typed"}
~~~

<details><summary>verify</summary>

~~~console verify
# it is two
$ echo 2
2
~~~

</details>
<details><summary>Hint</summary>

~~~text hint
Count.
~~~

</details>
<details><summary>Solution</summary>

~~~console solution fails
$ false
~~~

</details>

After it.

## Clean up

~~~console reset
$ rm two
~~~
`

func parse(s string) (course.Lab, error) {
	return course.Parse("07-page", []byte(strings.ReplaceAll(s, "~", "`")))
}

func TestParse(t *testing.T) {
	got, err := parse(page)
	if err != nil {
		t.Fatal(err)
	}
	two := course.Command{Line: "cat <<'END'\ntwo\nEND", Want: "two\n", Until: true}
	want := course.Lab{
		ID: "07-page", Title: "7. A page", Minutes: 5, Nodes: "hollow",
		Intro: "# 7. A page\n\n5 minutes · hollow nodes · no root\n\n## Why\n\nBecause.\n\n" +
			"```console begin\n# nothing is there\n$ ls\n```\n\n",
		Begin: []course.Check{{Says: "nothing is there", Command: course.Command{Line: "ls"}}},
		Steps: []course.Step{
			{Title: "Look", Text: "## 1. Look\n\nSee:\n\n```console\n$ echo one\none\n```\n\n", Do: []course.Command{{Line: "echo one", Want: "one\n"}}},
			{
				Title: "Do", Hint: "Count.\n",
				Text:   strings.ReplaceAll("## 2. Do\n\n~~~console until\n$ cat <<'END'\ntwo\nEND\ntwo\n$ true \\\n-\n~~~\n\n~~~json\n{\"not\": \"typed\"}\n~~~\n\nAfter it.\n\n", "~", "`"),
				Do:     []course.Command{two, {Line: "true \\\n-", Until: true}, {Line: "false", Fails: true}},
				Checks: []course.Check{{Says: "it is two", Command: course.Command{Line: "echo 2", Want: "2\n"}}},
			},
		},
		Outro: strings.ReplaceAll("## Clean up\n\n~~~console reset\n$ rm two\n~~~\n\n", "~", "`"),
		Reset: []course.Command{{Line: "rm two"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Parse refuses an invalid page, for example a page with commands that the course would never
// run. The error contains the line number.
func TestParseRefuses(t *testing.T) {
	for _, tc := range []struct{ name, old, new, want string }{
		{"terms", "5 minutes", "some minutes", `07-page.md:1: no line like "15 minutes · hollow nodes" below the title`},
		{"number", "## 2. Do", "## 3. Do", "07-page.md:23: the heading has the number 3, but this is step 2"},
		{"word", "console until", "console soon", `unknown word "soon" after console: want until, fails, begin, verify, solution or reset`},
		{"open", "</details>\n\nAfter", "After", "<details> is not closed in its section"},
		{"inside", "</details>\n<details><summary>Hint", "<details><summary>Hint", "<details> inside of another <details>"},
		{"outside", "<details><summary>Solution</summary>", "", "a solution block outside of <details>"},
		{"says", "# it is two\n", "", `verify: "echo 2" needs a line with # that describes its output`},
		{"hint", "text hint", "text", `step "Do": a verify block, but no hint`},
		{"do", "console\n$ echo one", "text\n$ echo one", `step "Look": no console block with commands`},
		{"typed", "$ echo one", "echo one", `console begins with "echo one": want a command after "$ "`},
		{"document", "two\nEND\ntwo", "two\ntwo", "no line END ends the here-document"},
		{"untried", "Because.", "~~~console\n$ true\n~~~", "a console block outside of a step would not be run"},
		{"reset", "console reset", "text", "no console block with the word reset"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			changed := strings.Replace(page, tc.old, tc.new, 1)
			if changed == page {
				t.Fatal("the edit changed nothing")
			}
			if _, err := parse(changed); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Parse = %v; want %q", err, tc.want)
			}
		})
	}
}

// Read accepts all pages that the binary contains.
func TestPages(t *testing.T) {
	if _, err := course.Read(labs.Pages); err != nil {
		t.Error(err)
	}
}

func TestMatches(t *testing.T) {
	for _, tc := range []struct {
		name, want, printed string
		shown, wanted       bool // result for a console block and for a verify block
	}{
		{"same", "a b\n", "a   b\n", true, true},
		{"another line", "a\n", "b\n", false, false},
		{"an additional line", "a\n", "a\nb\n", false, false},
		{"empty output", "", "\n", true, true},
		{"no expected output", "", "a\n", false, false},
		{"no newline at the end", "a\n", "a", true, true},
		{"omission in a line", "a … c\n", "a b c\n", true, true},
		{"omitted lines", "a\n…\nd\n", "a\nb\nc\nd\n", true, true},
		{"omission of no lines", "a\n…\nd\n", "a\nd\n", true, true},
		{"age", "node-1 22s\n", "node-1 3m4s\n", true, false},
		{"id", "op-000004 (i-000004)\n", "op-00000a (i-00000b)\n", true, false},
		{"another name", "node-1\n", "node-2\n", false, false},
		{"address", "http://127.64.0.1:30080/\n", "http://127.66.0.9:31000/\n", true, false},
		{"IPv6", "[fd00:127:65::1]:80\n", "[fd00:127:67::2]:80\n", true, false},
		{"pod", "web-5b7df8b546-s94jn\n", "web-5b7df8b546-x2k4z\n", true, false},
		{"time", "2030-01-01T00:00:00Z\n", "2031-02-03T04:05:06.789Z\n", true, false},
		{"pattern", "a.c (x)\n", "abc (x)\n", false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := course.Command{Want: tc.want}
			if got := c.Matches(tc.printed); got != tc.shown {
				t.Errorf("Command.Matches: got %v, want %v", got, tc.shown)
			}
			if got := (course.Check{Command: c}).Matches(tc.printed); got != tc.wanted {
				t.Errorf("Check.Matches: got %v, want %v", got, tc.wanted)
			}
		})
	}
}

// printingShell returns a shell that prints the next element of lines on each call. Calls after the
// last element print the last element again.
func printingShell(lines ...string) course.Shell {
	return func(context.Context, string) (string, int, error) {
		output := lines[0]
		if len(lines) > 1 {
			lines = lines[1:]
		}
		return output, 0, nil
	}
}

func TestVerifyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := course.Step{Checks: []course.Check{{Says: "it is b", Command: course.Command{Line: "look", Want: "b"}}}}
		if found, err := s.Verify(t.Context(), printingShell("a", "a", "b"), 5*time.Second); err != nil || !course.Good(found) {
			t.Errorf("before the deadline: got %+v, %v", found, err)
		}
		found, err := s.Verify(t.Context(), printingShell("a"), 5*time.Second)
		if err != nil || course.Good(found) {
			t.Fatalf("Verify of a check that never passes: got %+v, error %v; want a failed check", found, err)
		}
		var b strings.Builder
		found[0].Print(&b)
		if want := "✘ it is b\n    ran       look\n    saw       a\n    expected  b\n"; b.String() != want {
			t.Errorf("output: got %q, want %q", b.String(), want)
		}
	})
}

// Run repeats a command only if the page states that the output may appear late.
func TestRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := course.Command{Line: "look", Want: "b"}
		if _, err := c.Run(t.Context(), printingShell("a", "b"), time.Minute); err == nil {
			t.Error("the course typed the command again")
		}
		c.Until = true
		if _, err := c.Run(t.Context(), printingShell("a", "b"), time.Minute); err != nil {
			t.Error(err)
		}
	})
}

func TestProgress(t *testing.T) {
	l, err := parse(page)
	if err != nil {
		t.Fatal(err)
	}
	p, err := course.ReadProgress(nil)
	if err != nil || p.State(l) != "" {
		t.Fatalf("state at the start: got %q, error %v; want none", p.State(l), err)
	}
	p.Begin(l)
	p.Advance(l)
	if p.State(l) != "step 2 of 2" || p.Over(l) {
		t.Errorf("state after one step: got %q, over %t; want step 2 of 2, false", p.State(l), p.Over(l))
	}
	p.Advance(l)
	if p.State(l) != "done" || !p.Over(l) {
		t.Errorf("state after all steps: got %q, over %t; want done, true", p.State(l), p.Over(l))
	}
	p.Forget(l)
	if p.State(l) != "done" || p.Now != "" {
		t.Errorf("state after a reset: got %q, current lab %q; want done, no lab", p.State(l), p.Now)
	}
	p.Begin(l)
	if p.State(l) != "step 1 of 2" {
		t.Errorf("state after a new start: got %q, want step 1 of 2", p.State(l))
	}
	if _, err := course.ReadProgress([]byte("{")); err == nil {
		t.Error("a damaged file caused no error")
	}
}
