// Command licenses prints the licenses of the third-party code in Go programs. The programs
// record their modules, so the output lists exactly the linked modules. The modules must be in
// the module cache.
//
//	licenses PROGRAM...
package main

import (
	"bufio"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/mod/module"
)

const own = "github.com/cloudsim-dev/allinone"

var (
	license = regexp.MustCompile(`(?i)^(licen[cs]e|copying|copyright|notice|patents)([-._].*)?$`)
	// The variable skipped lists folders with licenses of code that no program links.
	skipped = []string{"testdata", "vendor", "LICENSES", "node_modules"}
)

func main() {
	w := bufio.NewWriter(os.Stdout)
	if err := errors.Join(run(w, os.Args[1:]), w.Flush()); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

// run writes the licenses of Go and of all modules in the programs, sorted by name.
func run(w io.Writer, programs []string) error {
	out, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	goroot, rest, _ := strings.Cut(string(out), "\n")
	cache := strings.TrimSpace(rest)
	dirs := map[string]string{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return err
		}
		dirs["Go "+strings.TrimPrefix(info.GoVersion, "go")] = goroot
		mods := info.Deps
		if !strings.HasPrefix(info.Main.Path, own) {
			mods = append(mods, &info.Main)
		}
		for _, m := range mods {
			name, dir, err := locate(cache, m)
			if err != nil {
				return fmt.Errorf("%s: %w", program, err)
			}
			if dir != "" {
				dirs[name] = dir
			}
		}
	}
	var names []string
	for name := range dirs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := print(w, name, dirs[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// locate returns the name of a module and its folder in the module cache. For a module of this
// project, both results are empty.
func locate(cache string, m *debug.Module) (name, dir string, err error) {
	if m.Replace != nil {
		m = m.Replace
	}
	if strings.HasPrefix(m.Path, own) || strings.HasPrefix(m.Path, ".") {
		return "", "", nil
	}
	path, err1 := module.EscapePath(m.Path)
	version, err2 := module.EscapeVersion(m.Version)
	return m.Path + " " + m.Version, filepath.Join(cache, path+"@"+version), errors.Join(err1, err2)
}

// print writes the text of all license files in dir to w. For the Go distribution, it writes only
// the license files in the root folder of the distribution.
func print(w io.Writer, name, dir string) error {
	found := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != dir && (slices.Contains(skipped, d.Name()) || strings.HasPrefix(name, "Go ")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !license.MatchString(d.Name()) || filepath.Ext(path) == ".go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		found++
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "==== %s: %s\n\n%s\n\n", name, filepath.ToSlash(rel), strings.TrimSpace(string(text)))
		return err
	})
	if err == nil && found == 0 {
		err = fmt.Errorf("no license file in %s: find the license, and add its file name to this program", dir)
	}
	return err
}
