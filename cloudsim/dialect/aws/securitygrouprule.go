package aws

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

const maxRules = 60 // largest number of rules of a security group, as in EC2

// rule permits connections from one source. The source is either CIDR or Group, and the other field
// is empty.
type rule struct {
	Protocol    string `json:"protocol"` // tcp, udp, icmp, icmpv6, or -1 for all
	From        int    `json:"from"`     // first port, or type of ICMP messages
	To          int    `json:"to"`       // last port, or code of ICMP messages
	CIDR        string `json:"cidr,omitempty"`
	Group       string `json:"group,omitempty"` // AWS's id
	Description string `json:"description,omitempty"`
}

// permitsSame reports whether two rules permit the same connections. The descriptions of the rules
// may differ.
func (r rule) permitsSame(other rule) bool {
	r.Description = other.Description
	return r == other
}

// permission contains rules with the same protocol and the same ports.
type permission struct {
	Protocol string           `xml:"ipProtocol"`
	From     *int             `xml:"fromPort,omitempty"`
	To       *int             `xml:"toPort,omitempty"`
	Groups   items[groupPair] `xml:"groups"`
	IPv4     items[ipv4Range] `xml:"ipRanges"`
	IPv6     items[ipv6Range] `xml:"ipv6Ranges"`
}

type groupPair struct {
	User        string `xml:"userId"`
	Group       string `xml:"groupId"`
	Description string `xml:"description,omitempty"`
}

type ipv4Range struct {
	CIDR        string `xml:"cidrIp"`
	Description string `xml:"description,omitempty"`
}

type ipv6Range struct {
	CIDR        string `xml:"cidrIpv6"`
	Description string `xml:"description,omitempty"`
}

// permissionsOf returns rules in EC2's format. Rules with the same protocol and the same ports are
// in one permission.
func permissionsOf(p cloudsim.ProjectID, rules []rule) (out items[permission]) {
	for _, r := range rules {
		at := slices.IndexFunc(out.Items, func(have permission) bool {
			return have.Protocol == r.Protocol && (have.From == nil || *have.From == r.From && *have.To == r.To)
		})
		if at < 0 {
			at = len(out.Items)
			one := permission{Protocol: r.Protocol}
			if r.Protocol != "-1" {
				one.From, one.To = new(r.From), new(r.To)
			}
			out.Items = append(out.Items, one)
		}
		to := &out.Items[at]
		switch {
		case r.Group != "":
			to.Groups.Items = append(to.Groups.Items, groupPair{accountOf(p), r.Group, r.Description})
		case strings.Contains(r.CIDR, ":"):
			to.IPv6.Items = append(to.IPv6.Items, ipv6Range{r.CIDR, r.Description})
		default:
			to.IPv4.Items = append(to.IPv4.Items, ipv4Range{r.CIDR, r.Description})
		}
	}
	return out
}

// protocols maps the values of the parameter IpProtocol to the protocols of rules.
var protocols = map[string]string{
	"-1": "-1", "tcp": "tcp", "6": "tcp", "udp": "udp", "17": "udp", "icmp": "icmp", "1": "icmp", "icmpv6": "icmpv6", "58": "icmpv6",
}

func (q *query) decodeRules() (all []rule) {
	const list = "IpPermissions"
	q.forEach(list, func(prefix string) {
		r := rule{Protocol: protocols[strings.ToLower(q.left[prefix+"IpProtocol"])]}
		if v := q.text(prefix + "IpProtocol"); r.Protocol == "" {
			q.fail(errInvalid(prefix+"IpProtocol", v, "tcp, udp, icmp, icmpv6 or -1"))
		}
		switch r.Protocol {
		case "-1": // EC2 ignores the ports of a rule for all protocols
			_, _ = q.text(prefix+"FromPort"), q.text(prefix+"ToPort")
		case "tcp", "udp":
			r.From = q.requiredInteger(prefix+"FromPort", 0, 65535)
			r.To = q.requiredInteger(prefix+"ToPort", r.From, 65535)
		default:
			r.From, r.To = q.integer(prefix+"FromPort", -1, 255, -1), q.integer(prefix+"ToPort", -1, 255, -1)
		}
		before := len(all)
		add := func(source rule) {
			r.CIDR, r.Group, r.Description = source.CIDR, source.Group, source.Description
			all = append(all, r)
		}
		for _, family := range []struct{ list, field string }{{"IpRanges", "CidrIp"}, {"Ipv6Ranges", "CidrIpv6"}} {
			q.forEach(prefix+family.list, func(at string) {
				add(rule{CIDR: q.cidr(at+family.field, family.field == "CidrIpv6"), Description: q.decodeOptionalGroupText(at + "Description")})
			})
		}
		q.forEach(prefix+"Groups", func(at string) {
			_ = q.text(at + "UserId") // the dialect knows only groups of the caller's project
			add(rule{Group: q.requiredText(at + "GroupId"), Description: q.decodeOptionalGroupText(at + "Description")})
		})
		if len(all) == before {
			q.fail(coded(http.StatusBadRequest, "MissingParameter", "the permission "+strings.TrimSuffix(prefix, ".")+" must have a source in IpRanges, Ipv6Ranges or Groups"))
		}
	})
	q.checkPresent(len(all) > 0, list)
	return all
}

// cidr returns the value of a required parameter that contains a range of addresses. The result is
// in canonical form.
func (q *query) cidr(name string, ipv6 bool) string {
	v := q.text(name)
	p, err := netip.ParsePrefix(v)
	if err != nil || p.Addr().Is6() != ipv6 || p.Addr().Is4In6() {
		family := "IPv4"
		if ipv6 {
			family = "IPv6"
		}
		q.fail(errInvalid(name, v, "a range of "+family+" addresses in CIDR notation"))
		return ""
	}
	return p.Masked().String()
}

func authorizeIngress(q *query) (any, error) {
	return changeRules(q, func(g *group, given []rule) error {
		for _, r := range given {
			if slices.ContainsFunc(g.Rules, r.permitsSame) {
				return coded(http.StatusBadRequest, "InvalidPermission.Duplicate", fmt.Sprintf("the security group %s has this rule already: protocol %s, FromPort %d, ToPort %d, source %s", g.id(), r.Protocol, r.From, r.To, r.CIDR+r.Group))
			}
			g.Rules = append(g.Rules, r)
		}
		if len(g.Rules) > maxRules {
			return coded(http.StatusBadRequest, "RulesPerSecurityGroupLimitExceeded", fmt.Sprintf("a security group has at most %d rules", maxRules))
		}
		return nil
	})
}

func revokeIngress(q *query) (any, error) {
	return changeRules(q, func(g *group, given []rule) error {
		for _, r := range given {
			at := slices.IndexFunc(g.Rules, r.permitsSame)
			if at < 0 {
				return coded(http.StatusBadRequest, "InvalidPermission.NotFound", fmt.Sprintf("the security group %s has no such rule: protocol %s, FromPort %d, ToPort %d, source %s", g.id(), r.Protocol, r.From, r.To, r.CIDR+r.Group))
			}
			g.Rules = slices.Delete(g.Rules, at, at+1)
		}
		return nil
	})
}

// changeRules changes the security group in the parameter GroupId with the function changeGroup.
// The arguments of changeGroup are this group, and the rules in the request.
func changeRules(q *query, changeGroup func(*group, []rule) error) (any, error) {
	id, given := q.requiredText("GroupId"), q.decodeRules()
	if err := q.finish(); err != nil {
		return nil, err
	}
	for _, r := range given {
		if r.Group == "" {
			continue
		}
		if _, err := readByIDs(q, groups, []string{r.Group}, nil); err != nil {
			return nil, err
		}
	}
	for range dialect.Attempts {
		found, err := readByIDs(q, groups, []string{id}, nil)
		if err != nil {
			return nil, err
		}
		g := found[0]
		if err := changeGroup(&g, given); err != nil {
			return nil, err
		}
		// The first call of applyGroup changes the load balancers before storeGroup stores the
		// rules. If this call or storeGroup fails, the record still contains the old rules. So a
		// repeated request makes all changes again.
		//
		// The second call of applyGroup applies the stored rules. It is necessary for two reasons:
		//   - Before storeGroup stores the rules, another caller may change another group of the
		//     same load balancer. That caller still reads the old rules of g, so its change undoes
		//     the first call.
		//   - If storeGroup has failed, the second call undoes the first call.
		if err = applyGroup(q, g, &g); err != nil {
			return nil, err
		}
		_, err = storeGroup(q, g, g.Labels)
		detached, cancel := q.detached()         // the client may have disconnected
		applyErr := applyGroup(detached, g, nil) // if this fails, the next change of the group does the same
		cancel()
		if errors.Is(err, cloudsim.Stale) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &returnAnswer{Return: true}, applyErr
	}
	return nil, cloudsim.Errorf(cloudsim.Conflict, "other callers change the security group %s at the same time: repeat the request", id)
}
