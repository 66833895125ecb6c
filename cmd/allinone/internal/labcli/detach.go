package labcli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/lab/process"
)

// startMessage is a message from a detached lab to the process that started the lab. A message has
// exactly one of the three fields.
type startMessage struct {
	Line  string          `json:"line,omitempty"`
	Ready *process.Report `json:"ready,omitempty"`
	// Errors contains the text of each error of the lab. A text may have several lines.
	Errors []string `json:"errors,omitempty"`
}

// detachedReporter implements startReporter for a detached lab. It sends messages to the process
// that started the lab. It ignores write errors, because that process may have ended.
type detachedReporter struct {
	out  *json.Encoder
	pipe io.Closer
}

func (m detachedReporter) progress(line string) { _ = m.out.Encode(startMessage{Line: line}) }
func (m detachedReporter) failed(err error) {
	_ = m.out.Encode(startMessage{Errors: cli.ErrorsOf(err)})
}
func (m detachedReporter) ready(_ context.Context, r process.Report) {
	_ = m.out.Encode(startMessage{Ready: &r})
	_ = m.pipe.Close()
}

// runDetached starts this program again in a new session. The new process runs the lab. runDetached
// returns when the lab is ready or has failed.
func (f *upFlags) runDetached(ctx context.Context, e cli.Env, fl *pflag.FlagSet) error {
	log, err := process.OpenLog(f.DataDir)
	if err != nil {
		return err
	}
	defer log.Close()
	hear, say, err := os.Pipe()
	if err != nil {
		return err
	}
	defer hear.Close()
	cmd := exec.Command(f.Self, f.detachedArgs(fl)...)
	cmd.Stdout, cmd.Stderr = log, log // for the output of main.main and for the output of a panic
	cmd.ExtraFiles = []*os.File{say}  // file descriptor 3 in the new process
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := errors.Join(cmd.Start(), say.Close()); err != nil {
		return err
	}
	// If the user presses Ctrl-C before the lab is ready, the lab stops.
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })()
	report, err := listen(ctx, hear, e.Stdout)
	if err == nil {
		return errors.Join(unreadyNodes(report), cmd.Process.Release())
	}
	waited := cmd.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, io.EOF) && waited == nil {
		return fmt.Errorf("another command stopped the lab before it was ready; see %s", log.Name())
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the lab ended before it was ready (%w); see %s", waited, log.Name())
	}
	return err
}

// detachedArgs returns the arguments for the process that runs the lab in the background. The
// arguments include all flags of the user except --detach.
func (f *upFlags) detachedArgs(fl *pflag.FlagSet) []string {
	args := []string{"up", "--report-to=3"}
	fl.Visit(func(flag *pflag.Flag) {
		if flag.Name != "detach" && flag.Name != "data-dir" {
			value := flag.Value.String()
			if list, ok := flag.Value.(pflag.SliceValue); ok { // for a list, the method String would add brackets
				value = strings.Join(list.GetSlice(), ",")
			}
			args = append(args, "--"+flag.Name+"="+value)
		}
	})
	return append(args, "--data-dir="+string(f.DataDir))
}

// listen reads the messages of a detached lab from pipe and prints the messages to w. When the lab
// is ready, the function returns the report about the lab. If the lab failed, the function returns
// the errors of the lab. If the lab ended and sent neither a report nor errors, the function
// returns io.EOF.
func listen(ctx context.Context, pipe io.Reader, w io.Writer) (process.Report, error) {
	d := json.NewDecoder(pipe)
	for {
		var n startMessage
		if err := d.Decode(&n); err != nil {
			return process.Report{}, err
		}
		switch {
		case n.Ready != nil:
			summarize(ctx, w, *n.Ready, false)
			return *n.Ready, nil
		case len(n.Errors) > 0:
			var errs []error
			for _, e := range n.Errors {
				errs = append(errs, errors.New(e))
			}
			return process.Report{}, errors.Join(errs...)
		default:
			fmt.Fprintln(w, n.Line)
		}
	}
}
