package servecli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"

	"github.com/spf13/pflag"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/registry"
)

type registryFlags struct {
	listen    string
	name      string
	plainHTTP bool
	reserve   int64 // MiB
	cfg       registry.Config
}

const defaultRegistryReserve = 256

func (f *registryFlags) flags(fl *pflag.FlagSet) {
	fl.StringVar(&f.listen, "registry-listen", "", "address of the image registry, e.g. 127.0.0.1:5000 (default no registry)")
	fl.StringVar(&f.name, "registry-name", "", "host[:port] of the registry in image names (default --registry-listen)")
	fl.BoolVar(&f.plainHTTP, "registry-plain-http", false, "serve the registry without TLS, only on loopback")
	fl.DurationVar(&f.cfg.Collect, "registry-collect", 0, "interval at which the registry removes unreferenced blobs, and minimum age of the removed blobs (default 1h)")
	fl.Float64Var(&f.cfg.TokensPerSecond, "registry-tokens-per-second", 0, "limit of token requests per second, for each address and for each caller, with bursts of ten times this limit (default 50)")
	fl.Int64Var(&f.reserve, "registry-reserve", defaultRegistryReserve, "free space in `MIB` that pushes must leave on the disk; 0 for none")
}

// openListener opens the listener of the registry and returns the name of the registry. If the
// flags request no registry, it returns "". Without --registry-plain-http, the registry uses TLS.
// The certificate authority in the folder dir signs the certificate of the registry. Clients must
// trust this authority. Its certificate is the file ca.crt in dir.
func (f *registryFlags) openListener(ctx context.Context, dir string) (string, error) {
	if f.cfg.Collect < 0 || f.cfg.TokensPerSecond < 0 || f.reserve < 0 || f.reserve > math.MaxInt64>>20 {
		return "", cloudsim.Misuse(fmt.Errorf("--registry-collect, --registry-tokens-per-second and --registry-reserve must not be negative, and --registry-reserve must not exceed %d MiB", int64(math.MaxInt64>>20)))
	}
	if f.cfg.Reserve = f.reserve << 20; f.reserve == 0 {
		f.cfg.Reserve = -1
	}
	if f.listen == "" {
		if f.name != "" || f.plainHTTP || f.cfg.Collect != 0 || f.cfg.TokensPerSecond != 0 || f.reserve != defaultRegistryReserve {
			return "", cloudsim.Misuse(errors.New("--registry-name, --registry-plain-http, --registry-collect, --registry-tokens-per-second and --registry-reserve need a registry: set --registry-listen"))
		}
		return "", nil
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return "", fmt.Errorf("--registry-listen: %w", err)
	}
	f.cfg.Dir, f.cfg.Listener = dir, ln
	f.cfg.Name = cmp.Or(f.name, ln.Addr().String())
	f.cfg.URL = "http://" + f.cfg.Name
	if f.plainHTTP {
		if at, err := netip.ParseAddrPort(ln.Addr().String()); err != nil || !at.Addr().IsLoopback() {
			return "", errors.Join(fmt.Errorf("--registry-plain-http needs a loopback address in --registry-listen, got %s", ln.Addr()), ln.Close())
		}
		return f.cfg.Name, nil
	}
	conf, err := f.tls(dir, ln)
	if err != nil {
		return "", errors.Join(err, ln.Close())
	}
	f.cfg.URL = "https://" + f.cfg.Name
	f.cfg.Listener = tls.NewListener(ln, conf)
	return f.cfg.Name, nil
}

func (f *registryFlags) tls(dir string, ln net.Listener) (*tls.Config, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	hosts := []string{f.cfg.Name, "localhost", "127.0.0.1"}
	if h, _, err := net.SplitHostPort(f.cfg.Name); err == nil {
		hosts[0] = h
	}
	if h, _, err := net.SplitHostPort(ln.Addr().String()); err == nil {
		hosts = append(hosts, h)
	}
	return registry.TLS(dir, hosts)
}
