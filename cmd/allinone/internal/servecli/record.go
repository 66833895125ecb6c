package servecli

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cloudsim/httpapi"
)

// record starts a transcript of the API's requests, in a new file that only the user of this
// process can read. The caller must close the file after the API has ended.
func record(log *slog.Logger, eng *engine.Engine, path string) (*httpapi.Transcript, *os.File, error) {
	head, err := eng.TranscriptHead()
	if err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("--record: %w", err)
	}
	t, err := httpapi.NewTranscript(log, f, head)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("--record: %w", err), f.Close())
	}
	return t, f, nil
}
