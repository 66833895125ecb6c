package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Sockets returns the paths of the sockets of Docker and Podman. If the variable DOCKER_HOST is
// set, Sockets returns only the socket in this variable. It returns an error if DOCKER_HOST does
// not begin with unix://. Sockets reads environment variables with getenv.
func Sockets(getenv func(string) string) ([]string, error) {
	if host := getenv("DOCKER_HOST"); host != "" {
		socket, ok := strings.CutPrefix(host, "unix://")
		if !ok {
			return nil, fmt.Errorf("DOCKER_HOST is %s, but only unix:// is supported; pipe the image instead: docker save IMAGE | allinone images load -", host)
		}
		return []string{socket}, nil
	}
	all := []string{"/var/run/docker.sock", "/run/podman/podman.sock"}
	if dir := getenv("XDG_RUNTIME_DIR"); dir != "" {
		all = append(all, filepath.Join(dir, "podman/podman.sock"))
	}
	return all, nil
}

// Save asks the engine (Docker or Podman) at each socket for the image. It returns the first
// archive that it gets, and the caller must close this archive. Save uses the call GET /images/get
// of the Docker Engine API, which Podman also serves.
func Save(ctx context.Context, sockets []string, image string) (io.ReadCloser, error) {
	var errs []error
	for _, socket := range sockets {
		body, err := save(ctx, socket, image)
		if err == nil {
			return body, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("%s: %w", socket, err))
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("image %s: %w", image, errors.Join(errs...))
	}
	return nil, fmt.Errorf("%s is not a file, and no container engine has a socket at %s; start Docker or Podman, or give the path of an archive", image, strings.Join(sockets, ", "))
}

func save(ctx context.Context, socket, image string) (io.ReadCloser, error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine/images/get?names="+url.QueryEscape(image), nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	return nil, errors.Join(fmt.Errorf("the container engine answers %s: %s; pull or build the image first", resp.Status, strings.TrimSpace(string(body))), err, resp.Body.Close())
}
