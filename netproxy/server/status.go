package server

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/cloudsim-dev/allinone/netproxy/wire"
)

// Status is the present state of a server.
type Status struct {
	ID          string             `json:"id"`
	Ready       bool               `json:"ready"`
	Reason      string             `json:"reason,omitempty"` // reason why the server is not ready
	Strategies  []Strategy         `json:"strategies"`
	Agents      []AgentStatus      `json:"agents"`
	Connections []ConnectionStatus `json:"connections"`
}

// AgentStatus is the state of one session with an agent. The byte counters begin at 0 for each
// session.
type AgentStatus struct {
	ID          string           `json:"id"`
	Address     string           `json:"address"`
	Since       time.Time        `json:"since"`
	Zone        string           `json:"zone,omitempty"`
	Identifiers wire.Identifiers `json:"identifiers"`
	Streams     bool             `json:"streams"` // each connection has its own stream
	Draining    bool             `json:"draining"`
	Connections int64            `json:"connections"` // including running dials
	ToTarget    int64            `json:"toTarget"`    // bytes
	FromTarget  int64            `json:"fromTarget"`
}

// ConnectionStatus is the state of an open connection.
type ConnectionStatus struct {
	ID         int64     `json:"id"`
	Frontend   Mode      `json:"frontend"`
	Protocol   string    `json:"protocol"`
	Target     string    `json:"target"`
	Agent      string    `json:"agent"`
	Since      time.Time `json:"since"`
	ToTarget   int64     `json:"toTarget"` // bytes
	FromTarget int64     `json:"fromTarget"`
}

// Status returns the present state of the server. The agents and the
// connections have a stable order.
func (s *Server) Status() Status {
	out := Status{ID: s.cfg.ID, Strategies: s.cfg.Strategies, Agents: []AgentStatus{}, Connections: []ConnectionStatus{}}
	if err := s.Ready(); err != nil {
		out.Reason = err.Error()
	} else {
		out.Ready = true
	}
	for _, a := range s.agents.list() {
		out.Agents = append(out.Agents, AgentStatus{
			ID: a.agentID, Address: a.peer, Since: a.since, Zone: a.zone, Identifiers: a.identifiers, Streams: a.secret != "",
			Draining: a.draining.Load(), Connections: a.load.Load(), ToTarget: a.toward.Load(), FromTarget: a.back.Load(),
		})
	}
	slices.SortFunc(out.Agents, func(a, b AgentStatus) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), a.Since.Compare(b.Since))
	})
	open, _ := s.conns.list()
	for _, c := range open {
		out.Connections = append(out.Connections, ConnectionStatus{
			ID: c.id, Frontend: c.mode, Protocol: c.target.protocol, Target: c.target.address, Agent: c.session.agentID,
			Since: c.since, ToTarget: c.toward.Load(), FromTarget: c.back.Load(),
		})
	}
	slices.SortFunc(out.Connections, func(a, b ConnectionStatus) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Ready returns an error if the server is stopping, or if no strategy can choose a connected agent.
func (s *Server) Ready() error {
	if s.stopping.Load() {
		return errStopping
	}
	for _, ses := range s.agents.list() {
		for _, by := range s.cfg.Strategies {
			if ses.canReachAny(by, s.cfg.Zone) {
				return nil
			}
		}
	}
	return errors.New("no agent is connected that a strategy can select")
}
