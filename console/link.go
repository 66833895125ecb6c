package console

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

// RequestLink asks the console at consoleURL for a new link, and returns the URL of this link. The
// client's token must permit the creation of tokens.
func RequestLink(ctx context.Context, cl *client.Client, consoleURL string, link CreateLink) (string, error) {
	u, err := url.Parse(consoleURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", cloudsim.Errorf(cloudsim.Invalid, "console URL %q: want a URL such as http://127.0.0.1:8180; a browser cannot use a socket", consoleURL)
	}
	in, err := json.Marshal(link)
	if err != nil {
		return "", err
	}
	base := u.Scheme + "://" + u.Host
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/console/links", strings.NewReader(string(in)))
	if err != nil {
		return "", err
	}
	if cl.Token != nil {
		secret, err := cl.Token()
		if err != nil {
			return "", err
		}
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	hc := cl.HTTP
	if cl.UsesSocket() { // the transport of this client can reach only the socket of the cloud
		hc = &http.Client{Timeout: hc.Timeout}
	}
	resp, err := hc.Do(req)
	if err != nil {
		return "", cloudsim.Errorf(cloudsim.Unavailable, "no console answers at %s: %w; start a cloud, or set --console-url", base, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	var out struct {
		Link
		Detail string        `json:"detail"`
		Kind   cloudsim.Kind `json:"kind"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&out); err != nil {
		return "", cloudsim.Errorf(cloudsim.Unavailable, "%s/console/links answered %s without JSON: the server is not a console; check --console-url", base, resp.Status)
	}
	if resp.StatusCode != http.StatusCreated {
		return "", cloudsim.Errorf(out.Kind, "%s", out.Detail)
	}
	return base + out.Path, nil
}
