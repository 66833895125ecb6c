package process

import (
	"cmp"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// LogFile is the log of a component, or of a program on a real node.
type LogFile struct {
	Name     string // program that writes the log
	Instance string // id of the instance whose machine runs the program, "" for a component of the lab
	Path     string
}

// Logs returns the logs that exist in the data dir: first the logs of components, then the logs of
// each machine. A program on a machine can replace the machine's log by a link or a pipe. So the
// caller must read only regular files, and must follow no link out of the log's folder.
func (d Dir) Logs() ([]LogFile, error) {
	var all []LogFile
	for _, pattern := range []string{"logs/*.log", "real/machines/*/console.log", "real/machines/*/disk/log/*.log"} {
		found, err := fs.Glob(os.DirFS(string(d)), pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range found {
			l := LogFile{Name: strings.TrimSuffix(path.Base(file), ".log"), Path: d.path(file)}
			if rest, ok := strings.CutPrefix(file, "real/machines/"); ok {
				l.Instance, _, _ = strings.Cut(rest, "/")
			}
			all = append(all, l)
		}
	}
	slices.SortStableFunc(all, func(a, b LogFile) int { return cmp.Compare(a.Instance, b.Instance) })
	return all, nil
}
