package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// SaveState saves the state of the whole cloud. The caller must be an admin.
func (c *Client) SaveState(ctx context.Context, req cloudsim.SaveState) (cloudsim.State, error) {
	return call[cloudsim.State](ctx, c.withoutTimeout(), "POST", "/v1/states", req)
}

// ListStates returns all saved states.
func (c *Client) ListStates(ctx context.Context) (cloudsim.States, error) {
	return call[cloudsim.States](ctx, c, "GET", "/v1/states", nil)
}

// LoadState replaces the contents of the cloud with a saved state. All watches of events end with
// Gone. The caller must be an admin.
func (c *Client) LoadState(ctx context.Context, name string, req cloudsim.LoadState) error {
	path := "/v1/states/" + seg(name) + "/load"
	if req.RecordsOnly {
		path += "?recordsOnly=true"
	}
	_, err := call[struct{}](ctx, c.withoutTimeout(), "POST", path, nil)
	return err
}

// DeleteState deletes a saved state.
func (c *Client) DeleteState(ctx context.Context, name string) error {
	_, err := call[struct{}](ctx, c, "DELETE", "/v1/states/"+seg(name), nil)
	return err
}

// ResetState deletes the contents of the cloud, except the projects, the access rights and the
// clock. All watches of events end with Gone. The caller must be an admin.
func (c *Client) ResetState(ctx context.Context) error {
	_, err := call[struct{}](ctx, c.withoutTimeout(), "POST", "/v1/states/reset", nil)
	return err
}

// DiffStates compares the saved states with the two given names. An empty name means the running
// cloud.
func (c *Client) DiffStates(ctx context.Context, from, to string) (cloudsim.StateDiff, error) {
	q := url.Values{}
	if from != "" {
		q.Set("from", from)
	}
	if to != "" {
		q.Set("to", to)
	}
	return call[cloudsim.StateDiff](ctx, c.withoutTimeout(), "GET", "/v1/states/diff?"+q.Encode(), nil)
}

// ExportState writes the file of a saved state to w. Any cloud can import the file.
func (c *Client) ExportState(ctx context.Context, name string, w io.Writer) error {
	resp, err := c.do(ctx, c.withoutTimeout().HTTP, http.MethodGet, "/v1/states/"+seg(name)+"/export", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	out := exportWriter{w: w}
	if _, err = io.Copy(&out, resp.Body); out.err != nil {
		return fmt.Errorf("export of state %s failed: cannot write the file: %w", name, out.err)
	}
	if err != nil {
		return cloudsim.Errorf(cloudsim.Unavailable, "export of state %s failed: %w", name, err)
	}
	return nil
}

// exportWriter keeps the error of a failed write, so that the caller of io.Copy can distinguish a
// failed write from a failed read.
type exportWriter struct {
	w   io.Writer
	err error
}

func (e *exportWriter) Write(b []byte) (n int, err error) {
	n, e.err = e.w.Write(b)
	return n, e.err
}

// ImportState reads the file of an exported state from r, and saves this state under the given
// name.
func (c *Client) ImportState(ctx context.Context, name string, r io.Reader) (cloudsim.State, error) {
	return call[cloudsim.State](ctx, c.withoutTimeout(), "PUT", "/v1/states/"+seg(name), nil, func(req *http.Request) {
		req.Body = io.NopCloser(r)
		req.ContentLength = -1
		req.Header.Set("Content-Type", "application/octet-stream")
	})
}
