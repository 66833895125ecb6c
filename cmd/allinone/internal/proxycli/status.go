package proxycli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/netproxy/server"
)

type proxyStatusFlags struct {
	url         string
	connections bool
	watch       bool
	every       time.Duration
	cli.Output
}

func newProxyStatusCommand(e cli.Env) *cobra.Command {
	f := proxyStatusFlags{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the agents, connections and bytes of a server",
		Long: `Show a server's agents, connections and bytes. The columns TO TARGET and FROM TARGET
count bytes: for an agent since its connection to the server, for a client's connection
since its start.`,
		Example: `  allinone proxy status --server unix:///run/network-proxy/admin.sock
  allinone proxy status --server unix://admin.sock --connections --watch`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), e.Stdout) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.url, "server", "", "admin socket of the server (--admin-socket of the server), as unix://`PATH`")
	fl.BoolVarP(&f.connections, "connections", "c", false, "show each connection")
	fl.BoolVarP(&f.watch, "watch", "w", false, "show the status repeatedly until Ctrl-C")
	fl.DurationVar(&f.every, "interval", 2*time.Second, "interval of --watch")
	f.Flags(cmd)
	return cmd
}

func (f *proxyStatusFlags) run(ctx context.Context, w io.Writer) error {
	for {
		s, err := fetchProxyStatus(ctx, f.url)
		if err == nil {
			err = f.print(w, s)
		}
		if err != nil && !f.watch {
			return err
		}
		if err != nil {
			fmt.Fprintln(w, err)
		}
		if !f.watch {
			return nil
		}
		t := time.NewTimer(f.every)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
		if f.Format == cli.FormatTable || f.Format == cli.FormatWide {
			fmt.Fprintln(w)
		}
	}
}

// maxStatus is the largest size in bytes of a status. It is large enough for about 100,000
// connections.
const maxStatus = 32 << 20

func fetchProxyStatus(ctx context.Context, url string) (s server.Status, err error) {
	path, ok := strings.CutPrefix(url, "unix://")
	if !ok || path == "" {
		return s, cloudsim.Errorf(cloudsim.Invalid, "--server must be unix:// and the path of the server's --admin-socket, got %q", url)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Timeout: 10 * time.Second, Transport: transport}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server"+statusPath, nil)
	if err != nil {
		return s, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return s, cloudsim.Errorf(cloudsim.Unavailable, "no network proxy server answers at %s: %w; start a server with 'allinone proxy server --admin-socket PATH', and run this command as the same user", url, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return s, cloudsim.Errorf(cloudsim.Unavailable, "%s answers %s: is it the admin socket of a network proxy server?", url, resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxStatus)).Decode(&s); err != nil {
		return s, cloudsim.Errorf(cloudsim.Unavailable, "%s is not a network proxy server: %w", url, err)
	}
	return s, nil
}

func (f *proxyStatusFlags) print(w io.Writer, s server.Status) error {
	agents := proxyAgentPrinter(w, f.Output)
	if f.Format == cli.FormatJSON || f.Format == cli.FormatYAML {
		return agents.Encode(s)
	}
	if f.Format != cli.FormatName {
		state := "ready"
		if !s.Ready {
			state = "not ready: " + s.Reason
		}
		fmt.Fprintf(w, "Server %s is %s; %d agents, %d connections.\n\n", s.ID, state, len(s.Agents), len(s.Connections))
	}
	if f.connections {
		return proxyConnectionPrinter(w, f.Output).List(s.Connections)
	}
	return agents.List(s.Agents)
}

func proxyAgentPrinter(w io.Writer, o cli.Output) cli.Printer[server.AgentStatus] {
	type agent = server.AgentStatus
	return cli.Printer[agent]{Output: o, Writer: w, ID: func(a agent) string { return a.ID }, Columns: []cli.Column[agent]{
		{Head: "AGENT", Cell: func(a agent) string { return a.ID }},
		{Head: "ADDRESS", Cell: func(a agent) string { return a.Address }},
		{Head: "ZONE", Cell: func(a agent) string { return a.Zone }},
		{Head: "PROTOCOL", Cell: agentWire},
		{Head: "CONNECTIONS", Cell: func(a agent) string { return strconv.FormatInt(a.Connections, 10) }},
		{Head: "TO TARGET", Cell: func(a agent) string { return bytesCell(a.ToTarget) }},
		{Head: "FROM TARGET", Cell: func(a agent) string { return bytesCell(a.FromTarget) }},
		{Head: "AGE", Cell: func(a agent) string { return cli.Age(a.Since) }},
		{Head: "IDENTIFIERS", Wide: true, Cell: func(a agent) string { return a.Identifiers.String() }},
	}}
}

func agentWire(a server.AgentStatus) string {
	wire := "upstream"
	if a.Streams {
		wire = "streams"
	}
	if a.Draining {
		wire += ", draining"
	}
	return wire
}

func proxyConnectionPrinter(w io.Writer, o cli.Output) cli.Printer[server.ConnectionStatus] {
	type conn = server.ConnectionStatus
	return cli.Printer[conn]{Output: o, Writer: w, ID: func(c conn) string { return strconv.FormatInt(c.ID, 10) }, Columns: []cli.Column[conn]{
		{Head: "ID", Cell: func(c conn) string { return strconv.FormatInt(c.ID, 10) }},
		{Head: "FRONTEND", Cell: func(c conn) string { return string(c.Frontend) }},
		{Head: "TARGET", Cell: func(c conn) string { return c.Protocol + "/" + c.Target }},
		{Head: "AGENT", Cell: func(c conn) string { return c.Agent }},
		{Head: "TO TARGET", Cell: func(c conn) string { return bytesCell(c.ToTarget) }},
		{Head: "FROM TARGET", Cell: func(c conn) string { return bytesCell(c.FromTarget) }},
		{Head: "AGE", Cell: func(c conn) string { return cli.Age(c.Since) }},
	}}
}

// bytesCell returns a number of bytes as text, in a suitable unit from B to TiB.
func bytesCell(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, u := float64(n), 0
	for v >= 1024 && u < len(units)-1 {
		v /= 1024
		u++
	}
	if u == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[u])
}
