// Package httpdriver calls drivers over HTTP with JSON, so that a provider can write its driver in
// any language. The package can also serve a conform.Driver over HTTP. The file openapi.yaml
// describes the protocol.
package httpdriver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cloudsim-dev/allinone/conform"
)

const (
	// maxBody is the maximum length of a request and of an answer in bytes.
	maxBody = 16 << 20
	// timeout is the longest time for one call, for example for the start of a machine.
	timeout = 5 * time.Minute
)

// driver implements conform.Driver. It passes each call to an HTTP server or to a program.
type driver struct {
	url  string
	http *http.Client
}

// New returns the driver at an http or https URL. If an answer is not valid, or the driver does
// not answer within 5 minutes, the methods return an error.
func New(baseURL string) (conform.Driver, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("driver URL %q: want http://HOST:PORT or https://HOST:PORT", baseURL)
	}
	return &driver{url: strings.TrimSuffix(baseURL, "/"), http: &http.Client{Timeout: timeout}}, nil
}

// problem is the body of an answer with an error status.
type problem struct {
	Error string `json:"error"`
}

// sendCall sends input as JSON, and decodes the answer into output. If input is nil, the request
// has no body. If output is nil, sendCall ignores the body of the answer.
func (d *driver) sendCall(ctx context.Context, method, path string, input, output any) error {
	var body io.Reader
	if input != nil {
		raw, err := json.Marshal(input)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, d.url+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := d.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", method, path, err)
	case len(raw) > maxBody:
		return fmt.Errorf("%s %s: the answer is longer than %d bytes", method, path, maxBody)
	case resp.StatusCode/100 != 2:
		return failure(method+" "+path, resp.StatusCode, raw)
	case output == nil:
		return nil
	}
	if err := json.Unmarshal(raw, output); err != nil {
		return fmt.Errorf("%s %s: the answer is not valid: %w", method, path, err)
	}
	return nil
}

func failure(call string, status int, raw []byte) error {
	var p problem
	if json.Unmarshal(raw, &p) != nil || p.Error == "" {
		p.Error = http.StatusText(status)
	}
	switch status {
	case http.StatusNotFound:
		return fmt.Errorf("%s: %s: %w", call, p.Error, conform.ErrNotFound)
	case http.StatusNotImplemented:
		return fmt.Errorf("%s: %s: %w", call, p.Error, conform.ErrUnsupported)
	}
	return fmt.Errorf("%s: status %d: %s", call, status, p.Error)
}

func getAnswer[T any](ctx context.Context, d *driver, path string) (out T, err error) {
	err = d.sendCall(ctx, http.MethodGet, path, nil, &out)
	return out, err
}

func (d *driver) Capabilities(ctx context.Context) (conform.Capabilities, error) {
	return getAnswer[conform.Capabilities](ctx, d, "/capabilities")
}

func (d *driver) CreateMachine(ctx context.Context, m conform.Machine) (out conform.Machine, err error) {
	err = d.sendCall(ctx, http.MethodPost, "/machines", m, &out)
	return out, err
}

func (d *driver) ListMachines(ctx context.Context) ([]conform.Machine, error) {
	return getAnswer[[]conform.Machine](ctx, d, "/machines")
}

func machinePath(name string) string { return "/machines/" + url.PathEscape(name) }

func (d *driver) GetMachine(ctx context.Context, name string) (conform.Machine, error) {
	return getAnswer[conform.Machine](ctx, d, machinePath(name))
}

func (d *driver) StopMachine(ctx context.Context, name string) error {
	return d.sendCall(ctx, http.MethodPost, machinePath(name)+"/stop", nil, nil)
}

func (d *driver) StartMachine(ctx context.Context, name string) error {
	return d.sendCall(ctx, http.MethodPost, machinePath(name)+"/start", nil, nil)
}

func (d *driver) DeleteMachine(ctx context.Context, name string) error {
	err := d.sendCall(ctx, http.MethodDelete, machinePath(name), nil, nil)
	if errors.Is(err, conform.ErrNotFound) {
		return nil
	}
	return err
}

func (d *driver) ListLoadBalancers(ctx context.Context) ([]conform.LoadBalancer, error) {
	return getAnswer[[]conform.LoadBalancer](ctx, d, "/load-balancers")
}

func (d *driver) DeleteLoadBalancer(ctx context.Context, id string) error {
	return d.sendCall(ctx, http.MethodDelete, "/load-balancers/"+url.PathEscape(id), nil, nil)
}

func (d *driver) ListRoutes(ctx context.Context) ([]conform.Route, error) {
	return getAnswer[[]conform.Route](ctx, d, "/routes")
}

func (d *driver) CreateRoute(ctx context.Context, r conform.Route) (out conform.Route, err error) {
	err = d.sendCall(ctx, http.MethodPost, "/routes", r, &out)
	return out, err
}

func (d *driver) DeleteRoute(ctx context.Context, id string) error {
	return d.sendCall(ctx, http.MethodDelete, "/routes/"+url.PathEscape(id), nil, nil)
}

func (d *driver) SetFault(ctx context.Context, f conform.Fault) error {
	return d.sendCall(ctx, http.MethodPut, "/fault", f, nil)
}

func (d *driver) ClearFault(ctx context.Context) error {
	return d.sendCall(ctx, http.MethodDelete, "/fault", nil, nil)
}

func (d *driver) Calls(ctx context.Context) (map[string]conform.Count, error) {
	return getAnswer[map[string]conform.Count](ctx, d, "/calls")
}

// Recording implements conform.Recorder.
func (d *driver) Recording(ctx context.Context, after time.Time) ([]conform.Call, error) {
	return getAnswer[[]conform.Call](ctx, d, "/recording?after="+url.QueryEscape(after.Format(time.RFC3339Nano)))
}
