package console

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// maxLog is the maximum number of bytes of a log in one answer.
const maxLog = 64 << 10

// Log is a log file of a lab. A lab is a cloud and a cluster that `allinone up` runs.
type Log struct {
	Name     string              `json:"name"`               // program that writes the log
	Instance cloudsim.InstanceID `json:"instance,omitempty"` // absent if the program is a component of the lab
	Path     string              `json:"path"`
}

// LogText is a part of a log.
type LogText struct {
	Text    string `json:"text"`
	Next    int64  `json:"next"`              // offset of the following text
	Skipped bool   `json:"skipped,omitempty"` // the text does not begin at the requested offset
}

// mayReadLogs reports whether the token of a request may read the logs. If the token may not read
// the logs, mayReadLogs also refuses the request. The token must have the right to read all
// projects, because the logs contain text about all projects.
func (c *Console) mayReadLogs(w http.ResponseWriter, r *http.Request) bool {
	_, a, ok := c.viewer(w, r)
	if ok && !a.logs {
		writeRefusal(w, cloudsim.Denied, "the token has no permission to read the logs: use a token that can read all projects")
	}
	return ok && a.logs
}

func (c *Console) serveLogs(w http.ResponseWriter, r *http.Request) {
	if !c.mayReadLogs(w, r) {
		return
	}
	all, err := c.cfg.Logs()
	if err != nil {
		refuseError(w, err)
		return
	}
	answer(w, http.StatusOK, cloudsim.List[Log]{Items: all})
}

// serveLog answers with the text of a log. The text begins at the offset in the query. If the query
// has no offset, the answer contains the end of the log. The browser repeats the call to follow the
// log. The console does not use a stream for each log, because a browser opens at most six
// connections to a host.
func (c *Console) serveLog(w http.ResponseWriter, r *http.Request) {
	if !c.mayReadLogs(w, r) {
		return
	}
	after := int64(-1)
	if q := r.URL.Query().Get("after"); q != "" {
		n, err := strconv.ParseInt(q, 10, 64)
		if err != nil || n < 0 {
			writeRefusal(w, cloudsim.Invalid, `the query parameter "after" must be the value of the field "next" of an earlier answer, got `+strconv.Quote(q))
			return
		}
		after = n
	}
	all, err := c.cfg.Logs()
	if err != nil {
		refuseError(w, err)
		return
	}
	for _, l := range all { // a caller can read only a file in this list
		if l.Name != r.PathValue("name") || string(l.Instance) != r.PathValue("instance") {
			continue
		}
		text, err := readLog(l.Path, after)
		if err != nil {
			refuseError(w, err)
			return
		}
		answer(w, http.StatusOK, text)
		return
	}
	writeRefusal(w, cloudsim.NotFound, "this log does not exist")
}

// readLog reads at most maxLog bytes of the log at path, in complete lines. The text begins at the
// given offset. If the offset is negative, or if the log has more than maxLog bytes after the
// offset, readLog reads the end of the log. If the log is shorter than the offset, another file has
// replaced it. In this case, readLog also reads the end of the log. A program on a simulated
// machine can replace the log by a link or by a pipe. So readLog follows no link that leads out of
// the log's folder, and reads only a regular file.
func readLog(path string, offset int64) (LogText, error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return LogText{}, logError(err)
	}
	defer func() { _ = root.Close() }()                                             // never fails for a folder that was only read
	f, err := root.OpenFile(filepath.Base(path), os.O_RDONLY|syscall.O_NONBLOCK, 0) // O_NONBLOCK: the open of a pipe must not wait
	if err != nil {
		return LogText{}, logError(err)
	}
	defer func() { _ = f.Close() }() // never fails for a file that was only read
	info, err := f.Stat()
	if err != nil {
		return LogText{}, logError(err)
	}
	if !info.Mode().IsRegular() {
		return LogText{}, cloudsim.Errorf(cloudsim.NotFound, "%s is not a regular file", path)
	}
	from := offset
	if from < 0 || from > info.Size() || info.Size()-from > maxLog { // from > size: the log was rotated
		from = max(0, info.Size()-maxLog)
	}
	raw := make([]byte, min(maxLog, info.Size()-from))
	n, err := f.ReadAt(raw, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return LogText{}, logError(err)
	}
	raw = raw[:n]
	skipped := from != max(offset, 0)
	if skipped && from > 0 { // the text may begin in the middle of a line
		_, rest, _ := bytes.Cut(raw, []byte("\n"))
		from += int64(len(raw) - len(rest))
		raw = rest
	}
	if end := bytes.LastIndexByte(raw, '\n') + 1; end > 0 || len(raw) < maxLog {
		raw = raw[:end] // the rest is a line that the program has not finished
	}
	return LogText{Text: string(bytes.ToValidUTF8(raw, []byte("\uFFFD"))), Next: from + int64(len(raw)), Skipped: skipped}, nil
}

func logError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return cloudsim.Errorf(cloudsim.NotFound, "this log does not exist: %w", err)
	}
	return cloudsim.Errorf(cloudsim.Internal, "this log cannot be read: %w", err)
}
