package allinone

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// notOnGitHub matches the characters that GitHub removes from the anchor of a heading.
var notOnGitHub = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

type document struct {
	links   []string
	anchors map[string]bool
}

// TestLinks proves that every link in a page leads to an existing file and heading.
func TestLinks(t *testing.T) {
	docs := map[string]document{}
	if err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "bin" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != "."):
			return fs.SkipDir
		case filepath.Ext(path) == ".md":
			docs[path], err = readDocument(path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for path, d := range docs {
		for _, link := range d.links {
			if why := linkError(docs, path, link); why != "" {
				t.Errorf("%s: link to %s: %s", path, link, why)
			}
		}
	}
	for path := range docs { // the index lists all guides
		if strings.HasPrefix(path, "docs/howto/") && !linked(docs, "docs/README.md", path) {
			t.Errorf("docs/README.md does not lead to %s", path)
		}
	}
}

func readDocument(path string) (document, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return document{}, err
	}
	d := document{anchors: map[string]bool{}}
	root := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(src))
	err = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Link:
			if entering {
				d.links = append(d.links, string(n.Destination))
			}
		case *ast.Heading:
			if entering {
				title := strings.ToLower(strings.ReplaceAll(string(n.Lines().Value(src)), "`", ""))
				d.anchors[strings.ReplaceAll(notOnGitHub.ReplaceAllString(title, ""), " ", "-")] = true
			}
		}
		return ast.WalkContinue, nil
	})
	return d, err
}

// target returns the file and the anchor to which a link on the given page points.
func target(page, link string) (file, anchor string) {
	file, anchor, _ = strings.Cut(link, "#")
	if file == "" {
		return page, anchor
	}
	return filepath.Join(filepath.Dir(page), file), anchor
}

// linkError returns the reason why a link on the given page does not work. It returns "" for a
// working link. It also returns "" for a link to the web, because it does not check such a link.
func linkError(docs map[string]document, page, link string) string {
	if strings.Contains(link, "://") {
		return ""
	}
	file, anchor := target(page, link)
	if _, err := os.Stat(file); err != nil {
		return err.Error()
	}
	if d, ok := docs[file]; ok && anchor != "" && !d.anchors[anchor] {
		return "no such heading"
	}
	return ""
}

func linked(docs map[string]document, from, to string) bool {
	for _, link := range docs[from].links {
		if file, _ := target(from, link); file == to {
			return true
		}
	}
	return false
}

// TestSecurityNamesTests proves that each test that SECURITY.md names exists.
func TestSecurityNamesTests(t *testing.T) {
	page, err := os.ReadFile("SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	if err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllSubmatch(src, -1) {
			exists[string(m[1])] = true
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllSubmatch(page, -1)
	if len(named) < 20 {
		t.Errorf("SECURITY.md: found the names of %d tests, want at least 20", len(named))
	}
	for _, m := range named {
		if !exists[string(m[1])] {
			t.Errorf("SECURITY.md names %s, which does not exist", m[1])
		}
	}
}
