package lab

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// component is one row of the lab's table: a program that the supervisor keeps
// running, or a part of this process. The table is a graph. The field named after
// lists other components. The component starts when all these components are
// ready. It stops before these components stop.
type component struct {
	name    string
	address string // address for people, "" if the component does not listen
	program program
	args    []string
	run     func(context.Context) error // runs instead of a program and returns when its context ends
	after   []string
	before  func(context.Context) error // called before each start
	ready   probe                       // nil means ready as soon as the component runs
	then    func(context.Context) error // called each time the component is ready, before dependent components start
}

// program is a file to execute. Kubernetes' multi-call binary chooses its program by
// the zeroth argument. The field name holds this argument.
type program struct {
	path string
	name string
}

// programs finds Kubernetes' programs. It prefers a separate binary in binDir, then the
// multi-call binary in binDir, then the multi-call binary at the path in the field
// kube.
type programs struct {
	kube   string
	binDir string // "" means none
}

func (p programs) find(name string) program {
	if p.binDir != "" {
		for _, own := range []string{name, "kube"} {
			if path := filepath.Join(p.binDir, own); isExecutable(path) == nil {
				return program{path, name}
			}
		}
	}
	return program{p.kube, name}
}

// isExecutable returns an error with the reason if a file cannot be executed.
func isExecutable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a folder", path)
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not executable", path)
	}
	return nil
}

// probe asks a component once and returns nil if the component is ready.
type probe func(context.Context) error

const (
	probeEvery   = 20 * time.Millisecond
	probeTimeout = 5 * time.Second
)

// httpProbe returns a probe that succeeds when a GET of url answers 200. The argument conf may
// be nil if url is an http URL.
func httpProbe(url string, conf *tls.Config) probe {
	client := &http.Client{
		Timeout:   probeTimeout,
		Transport: &http.Transport{TLSClientConfig: conf, MaxIdleConns: 1},
	}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		said, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s: %s", url, resp.Status, said)
		}
		return nil
	}
}

// await calls the probe until it succeeds. It returns false if ctx ends before the probe
// succeeds.
func (p probe) await(ctx context.Context) bool {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for p != nil && p(ctx) != nil {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}
