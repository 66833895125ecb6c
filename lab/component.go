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

// component is one row of the lab's table: a program that is kept running, or
// a part of this process. The table is a graph: what a row comes after is
// ready before it starts, and stops after it has stopped.
type component struct {
	name    string
	address string // where it serves, for people; "" if it does not
	program program
	args    []string
	run     func(context.Context) error // instead of a program; returns when its context ends
	after   []string
	before  func(context.Context) error // each time, before it starts
	ready   probe                       // nil: ready as soon as it runs
	then    func(context.Context) error // each time, once it is ready, before what comes after it
}

// program is a file to execute. Upstream's multi-call binary acts as what its
// zeroth argument says.
type program struct {
	path string
	name string
}

// programs finds upstream's programs: an own binary in binDir if there is
// one, else the multi-call binary, there or where it was built.
type programs struct {
	kube   string
	binDir string // "" for none
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

// isExecutable says why a file cannot be run.
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

// probe asks a component once whether it is ready.
type probe func(context.Context) error

const (
	probeEvery   = 20 * time.Millisecond
	probeTimeout = 5 * time.Second
)

// httpProbe is ready when a GET of url answers 200. conf may be nil for http.
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

// await asks until the component is ready, or ctx ends, which is false.
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
