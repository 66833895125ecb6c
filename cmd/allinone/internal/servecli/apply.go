package servecli

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim/apply"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/engine"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// applyAtStart applies a file with resources through the API, before the API serves other callers.
// The first caller therefore finds all resources of the file.
func applyAtStart(ctx context.Context, log *slog.Logger, api http.Handler, file, secret string) error {
	wanted, err := apply.Read(file, strings.NewReader(""))
	if err != nil {
		return err
	}
	cl := &client.Client{
		URL: "http://cloud", HTTP: &http.Client{Transport: inProcess{api}}, Token: client.StaticToken(secret),
		Project: engine.DefaultProject, UserAgent: "allinone/" + cli.Version(),
	}
	done, err := apply.All(ctx, cl, wanted, false)
	for _, a := range done {
		log.Info("applied", "list", a.List, "name", a.Name, "result", a.Result, "fields", a.Fields)
	}
	return err
}
