package engine

import (
	"slices"
	"strconv"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// Published is a range of ports on a host. A client that cannot connect to the address of a load
// balancer connects to one of these ports instead. With the zero value, listeners have no published
// ports. If the host is not the cloud's machine, another program, such as a container engine, must
// forward the ports to the cloud's machine.
type Published struct {
	Host        string
	First, Last int
}

const byPublished = "published"

func publishedOf(l *cloudsim.LoadBalancer) []string {
	var keys []string
	for _, p := range l.Published {
		keys = append(keys, publishedKey(p.Protocol, p.PublishedPort))
	}
	return keys
}

func publishedKey(p cloudsim.Protocol, port int) string { return string(p) + "/" + strconv.Itoa(port) }

// publish assigns a published port to each listener of lb (see the type Published). A listener
// keeps its present published port if the port is in the configured range. Otherwise it gets the
// lowest free port. If no port is free, the listener gets no published port. In this case, publish
// returns no error, because a listener also works without a published port. The run time of publish
// grows with the number of ports in the configured range.
func (e *Engine) publish(tx *store.Tx, lb *cloudsim.LoadBalancer) error {
	r := e.cfg.Published
	var kept []cloudsim.PublishedPort
	for _, p := range lb.Published {
		listens := slices.ContainsFunc(lb.Listeners, func(l cloudsim.Listener) bool { return p.Protocol == l.Protocol && p.Port == l.Port })
		if listens && r.First <= p.PublishedPort && p.PublishedPort <= r.Last {
			kept = append(kept, p)
		}
	}
	lb.Published = nil
	if r.Host == "" {
		return nil
	}
	for _, l := range lb.Listeners {
		at := slices.IndexFunc(kept, func(p cloudsim.PublishedPort) bool { return p.Protocol == l.Protocol && p.Port == l.Port })
		p := cloudsim.PublishedPort{Protocol: l.Protocol, Port: l.Port, Host: r.Host}
		if at >= 0 {
			p.PublishedPort = kept[at].PublishedPort
		} else if err := e.choosePublished(tx, lb, kept, &p); err != nil {
			return err
		}
		if p.PublishedPort != 0 {
			lb.Published = append(lb.Published, p)
		}
	}
	return nil
}

// choosePublished sets p.PublishedPort to the lowest free port in the configured range. If no port
// is free, it does not change p. A port is not free if it is a published port of another load
// balancer, or is in lb.Published or kept. The parameter kept contains the published ports that
// listeners of lb keep.
func (e *Engine) choosePublished(tx *store.Tx, lb *cloudsim.LoadBalancer, kept []cloudsim.PublishedPort, p *cloudsim.PublishedPort) error {
	for port := e.cfg.Published.First; port <= e.cfg.Published.Last; port++ {
		same := func(o cloudsim.PublishedPort) bool { return o.Protocol == p.Protocol && o.PublishedPort == port }
		if slices.ContainsFunc(lb.Published, same) || slices.ContainsFunc(kept, same) {
			continue
		}
		users, err := loadBalancers.Lookup(tx, byPublished, publishedKey(p.Protocol, port)) // users can contain lb, because the store still has its old ports
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(users, func(u cloudsim.LoadBalancer) bool { return u.ID != lb.ID }) {
			p.PublishedPort = port
			return nil
		}
	}
	return nil
}

// publishedAs stores the range from which republish last assigned the published ports.
var publishedAs = store.Notes[Published]{Name: "published"}

// republish calls publish for all load balancers if the configured range of ports has changed.
func (e *Engine) republish(tx *store.Tx) error {
	have, _, err := publishedAs.Get(tx, "range")
	if err != nil || have == e.cfg.Published {
		return err
	}
	var all []cloudsim.LoadBalancer
	for l, err := range loadBalancers.Scan(tx, "", "") {
		if err != nil {
			return err
		}
		all = append(all, l)
	}
	for _, l := range all {
		before := l.Published
		if err := e.publish(tx, &l); err != nil {
			return err
		}
		if slices.Equal(before, l.Published) {
			continue
		}
		l.Status = l.StatusFor(l.Status)
		if err := loadBalancers.Put(tx, &l); err != nil {
			return err
		}
	}
	return publishedAs.Put(tx, "range", e.cfg.Published)
}
