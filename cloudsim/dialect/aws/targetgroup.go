package aws

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// This cloud has no target groups, so the dialect stores them in records. It copies the targets and
// the health check of a target group to the listeners of network load balancers; see
// computeListeners.

const targetGroupRecords = "aws-target-group" // kind of the records

type targetGroup = storedObject[targetGroupDocument]

// targetGroupDocument is the document of a record that stores a target group.
type targetGroupDocument struct {
	Name          string                `json:"name"`
	Region        string                `json:"region"`
	Network       cloudsim.NetworkID    `json:"network"`
	Protocol      string                `json:"protocol"` // a key of transports
	Port          int                   `json:"port"`
	HealthCheck   cloudsim.HealthCheck  `json:"healthCheck"` // Port is 0 if the health check uses the port of the targets
	Targets       []cloudsim.InstanceID `json:"targets"`
	DrainSeconds  int                   `json:"drainSeconds"`
	ProxyProtocol bool                  `json:"proxyProtocol"`
	PreserveIP    bool                  `json:"preserveClientIP"` // has no effect
}

// healthCheck returns the health check of a target group. If the health check has no port of its
// own, the result contains the port of the targets.
func (d targetGroupDocument) healthCheck() cloudsim.HealthCheck {
	h := d.HealthCheck
	if h.Port == 0 {
		h.Port = d.Port
	}
	return h
}

// sameSettings reports whether the target groups d and other have the same settings. It does not
// compare the targets and the attributes, because a request for a new target group does not contain
// them.
func (d targetGroupDocument) sameSettings(other targetGroupDocument) bool {
	return d.Name == other.Name && d.Region == other.Region && d.Network == other.Network && d.Protocol == other.Protocol && d.Port == other.Port && d.HealthCheck == other.HealthCheck
}

// transports maps each protocol of AWS's listeners and target groups to the protocols of this
// cloud's listeners.
var transports = map[string][]cloudsim.Protocol{
	"TCP": {cloudsim.TCP}, "UDP": {cloudsim.UDP}, "TCP_UDP": {cloudsim.TCP, cloudsim.UDP},
}

// decodeProtocol returns the parameter Protocol of a listener or a target group. If the request
// does not contain this parameter, decodeProtocol returns defaultValue. If defaultValue is "", the
// request must contain the parameter.
func (q *query) decodeProtocol(one, defaultValue string) string {
	if defaultValue == "" && q.left["Protocol"] == "" {
		return q.requiredText("Protocol")
	}
	return q.decodeChoice("Protocol", defaultValue, one+" with the protocol", []string{"TCP", "UDP", "TCP_UDP"}, []string{"TLS", "HTTP", "HTTPS", "GENEVE", "QUIC", "TCP_QUIC"})
}

type targetGroupDescription struct {
	ARN           string          `xml:"TargetGroupArn"`
	Name          string          `xml:"TargetGroupName"`
	Protocol      string          `xml:"Protocol"`
	Port          int             `xml:"Port"`
	VPCID         string          `xml:"VpcId"`
	CheckProtocol string          `xml:"HealthCheckProtocol"`
	CheckPort     string          `xml:"HealthCheckPort"`
	CheckEnabled  bool            `xml:"HealthCheckEnabled"`
	Interval      int             `xml:"HealthCheckIntervalSeconds"`
	Timeout       int             `xml:"HealthCheckTimeoutSeconds"`
	Healthy       int             `xml:"HealthyThresholdCount"`
	Unhealthy     int             `xml:"UnhealthyThresholdCount"`
	Path          string          `xml:"HealthCheckPath,omitempty"`
	Codes         string          `xml:"Matcher>HttpCode,omitempty"`
	LoadBalancers members[string] `xml:"LoadBalancerArns"`
	TargetType    string          `xml:"TargetType"`
	AddressType   string          `xml:"IpAddressType"`
}

const trafficPort = "traffic-port" // value of the parameter HealthCheckPort that means the port of the targets

// healthCheckPort returns the port of a health check in AWS's format.
func healthCheckPort(h cloudsim.HealthCheck) string {
	if h.Port == 0 {
		return trafficPort
	}
	return strconv.Itoa(h.Port)
}

// targetGroupAnswer returns an answer that contains the given target groups in AWS's format.
func targetGroupAnswer(q *query, r routing, found []targetGroup, next string) (any, error) {
	live, err := listNetworkLoadBalancers(q)
	if err != nil {
		return nil, err
	}
	out := &members[targetGroupDescription]{}
	for _, g := range found {
		h := g.Doc.HealthCheck
		d := targetGroupDescription{
			ARN: targetGroupARN(g), Name: g.Doc.Name, Protocol: g.Doc.Protocol, Port: g.Doc.Port, VPCID: idOf(prefixVPC, g.Doc.Network),
			CheckProtocol: strings.ToUpper(string(h.Protocol)), CheckPort: healthCheckPort(h), CheckEnabled: true, Interval: h.IntervalMillis / 1000, Timeout: h.TimeoutMillis / 1000,
			Healthy: h.HealthyThreshold, Unhealthy: h.UnhealthyThreshold, Path: h.Path, Codes: h.ExpectedCodes, TargetType: "instance", AddressType: "ipv4",
		}
		for _, l := range r.findLiveUsers(live, g.ID) {
			d.LoadBalancers.Items = append(d.LoadBalancers.Items, loadBalancerARN(l))
		}
		out.Items = append(out.Items, d)
	}
	return networkAnswer(q, networkResult{TargetGroups: out, Next: next}), nil
}

// findTargetGroup returns the target group with the given ARN.
func (r routing) findTargetGroup(q *query, wanted string) (targetGroup, error) {
	id, err := idFromARN[cloudsim.RecordID](wanted, arnTargetGroup, groupPrefix, "a target group")
	if err != nil {
		return targetGroup{}, err
	}
	g, ok := r.getTargetGroup(id)
	if !ok || g.Doc.Region != q.region() || targetGroupARN(g) != wanted {
		return g, errNoTargetGroup(wanted)
	}
	return g, nil
}

func errNoTargetGroup(name string) error {
	return coded(http.StatusBadRequest, "TargetGroupNotFound", "the target group "+clipARN(name)+" does not exist")
}

// changeHealthCheck copies the health check parameters of the request to h. If the request does not
// contain the parameter for a value, the value stays the same, with two exceptions:
//   - If h is new, or if the request changes the protocol, three values become AWS's defaults for
//     the protocol: the timeout, the path and the codes.
//   - If the timeout is longer than the interval, the timeout becomes the interval.
func (q *query) changeHealthCheck(h *cloudsim.HealthCheck) {
	before := h.Protocol
	h.Protocol = cloudsim.HealthProtocol(strings.ToLower(q.decodeChoice("HealthCheckProtocol", strings.ToUpper(string(h.Protocol)), "", []string{"TCP", "HTTP", "HTTPS"}, nil)))
	h.IntervalMillis = 1000 * q.integer("HealthCheckIntervalSeconds", 5, 300, h.IntervalMillis/1000)
	if h.Protocol != before || h.TimeoutMillis == 0 {
		h.Path, h.ExpectedCodes, h.TimeoutMillis = "", "", 10_000
		if h.Protocol != cloudsim.HealthTCP {
			h.Path, h.ExpectedCodes = "/", "200-399"
		}
		if h.Protocol == cloudsim.HealthHTTP {
			h.TimeoutMillis = 6_000
		}
	}
	const timeout = "HealthCheckTimeoutSeconds"
	if v := q.left[timeout]; v == "" {
		h.TimeoutMillis = min(h.TimeoutMillis, h.IntervalMillis)
	} else if h.TimeoutMillis = 1000 * q.integer(timeout, 2, 60, 0); h.TimeoutMillis > h.IntervalMillis {
		q.fail(errInvalid(timeout, v, "at most HealthCheckIntervalSeconds"))
	}
	h.HealthyThreshold = q.integer("HealthyThresholdCount", 2, 10, h.HealthyThreshold)
	h.UnhealthyThreshold = q.integer("UnhealthyThresholdCount", 2, 10, h.UnhealthyThreshold)
	const port = "HealthCheckPort"
	if q.left[port] == trafficPort {
		q.text(port)
		h.Port = 0
	} else {
		h.Port = q.integer(port, 1, 65535, h.Port)
	}
	for _, p := range []struct {
		name  string
		field *string
	}{{"HealthCheckPath", &h.Path}, {"Matcher.HttpCode", &h.ExpectedCodes}} {
		if v := q.text(p.name); v != "" && h.Protocol == cloudsim.HealthTCP {
			q.fail(errInvalid(p.name, v, "absent, because the health check has the protocol TCP"))
		} else if v != "" {
			*p.field = v
		}
	}
	if _, ok := q.left["HealthCheckEnabled"]; ok && !q.flag("HealthCheckEnabled") {
		q.fail(errInvalid("HealthCheckEnabled", "false", "true, because the targets are instances"))
	}
	if err := (cloudsim.UpdateLoadBalancer{LoadBalancerSpec: cloudsim.LoadBalancerSpec{HealthCheck: *h}}).Validate(); err != nil {
		q.fail(err)
	}
}

// createTargetGroup creates a target group. If a target group with the same name and the same
// settings exists, createTargetGroup returns the existing target group, as AWS does. If the
// settings differ, it returns an error.
func createTargetGroup(q *query) (any, error) {
	g := targetGroup{Doc: targetGroupDocument{
		Name: q.decodeName(), Region: q.region(), Protocol: q.decodeProtocol("a target group", ""), Port: q.requiredInteger("Port", 1, 65535),
		HealthCheck: cloudsim.HealthCheck{Protocol: cloudsim.HealthTCP, IntervalMillis: 30_000, HealthyThreshold: 5, UnhealthyThreshold: 2}, DrainSeconds: defaultDrain, PreserveIP: true,
	}}
	q.changeHealthCheck(&g.Doc.HealthCheck)
	q.decodeChoice("TargetType", "instance", "a target group with the target type", []string{"instance"}, []string{"ip", "lambda", "alb"})
	q.decodeChoice("IpAddressType", "ipv4", "a target group with the address type", []string{"ipv4"}, []string{"ipv6"})
	vpcID, given := q.requiredText("VpcId"), labelsOf(q.decodeTags("Tags.member"))
	if err := q.finish(); err != nil {
		return nil, err
	}
	found, err := readByIDs(q, vpcs, []string{vpcID}, nil)
	if err != nil {
		return nil, err
	}
	g.Doc.Network, g.Name = found[0].ID, g.Doc.Region+"/"+g.Doc.Name
	if g.Labels, err = dialect.WithLabels(given, nil); err != nil {
		return nil, err
	}
	wanted := g.Doc
	g, err = storeObject(q, targetGroupRecords, g)
	if err != nil && !errors.Is(err, cloudsim.Exists) {
		return nil, translateKind(err, map[cloudsim.Kind]string{cloudsim.Exhausted: "TooManyTargetGroups"})
	}
	r, readErr := readRouting(q)
	if readErr != nil {
		return nil, readErr
	}
	if err != nil { // the name exists; other calls may have changed the targets and the attributes of the existing target group
		at := slices.IndexFunc(r.groups, func(have targetGroup) bool { return have.Doc.sameSettings(wanted) })
		if at < 0 {
			return nil, coded(http.StatusBadRequest, "DuplicateTargetGroupName", "a target group with the name "+clip(wanted.Name)+" and other settings exists already")
		}
		g = r.groups[at]
	}
	return targetGroupAnswer(q, r, []targetGroup{g}, "")
}

func describeTargetGroups(q *query) (any, error) {
	arns, names, user, p := q.textList("TargetGroupArns.member"), q.textList("Names.member"), q.text("LoadBalancerArn"), q.decodeMarkerPage()
	if err := q.finish(); err != nil {
		return nil, err
	}
	if err := checkOnlyOne("LoadBalancerArn, TargetGroupArns and Names", arns, names, []string{user}); err != nil {
		return nil, err
	}
	r, err := readRouting(q)
	if err != nil {
		return nil, err
	}
	var found []targetGroup
	for _, wanted := range arns {
		g, err := r.findTargetGroup(q, wanted)
		if err != nil {
			return nil, err
		}
		found = append(found, g)
	}
	all := slices.DeleteFunc(slices.Clone(r.groups), func(g targetGroup) bool { return g.Doc.Region != q.region() })
	for _, name := range names {
		at := slices.IndexFunc(all, func(g targetGroup) bool { return g.Doc.Name == name })
		if at < 0 {
			return nil, errNoTargetGroup(name)
		}
		found = append(found, all[at])
	}
	if len(found) > 0 {
		return targetGroupAnswer(q, r, found, "")
	}
	if user != "" {
		l, err := findNetworkLoadBalancer(q, user)
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(g targetGroup) bool { return !slices.Contains(r.findUsers(g.ID), l.ID) })
	}
	found, next := pageOf(p, all, func(g targetGroup) string { return string(g.ID) })
	return targetGroupAnswer(q, r, found, next)
}

// changeTargetGroup uses the function fn to change the target group with the given ARN. It also
// updates the load balancers that use the target group. If another caller changes the target group
// at the same time, changeTargetGroup reads the target group again and calls fn again.
func changeTargetGroup(q *query, wanted string, fn func(*targetGroup) error) (r routing, g targetGroup, err error) {
	for range dialect.Attempts {
		if r, err = readRouting(q); err != nil {
			return r, g, err
		}
		if g, err = r.findTargetGroup(q, wanted); err != nil {
			return r, g, err
		}
		if err = fn(&g); err != nil {
			return r, g, err
		}
		if err = applyRecords(q, r.findUsers(g.ID), func(r *routing) { r.groups = put(r.groups, g) }); err != nil {
			return r, g, err
		}
		if g, err = storeObject(q, targetGroupRecords, g); err != nil {
			undoRecords(q, r.findUsers(g.ID))
		}
		switch {
		case errors.Is(err, cloudsim.Stale):
			continue
		case errors.Is(err, cloudsim.NotFound):
			return r, g, errNoTargetGroup(wanted) // another caller has deleted the target group
		case err != nil:
			return r, g, err
		}
		if r, err = readRouting(q); err != nil {
			return r, g, err
		}
		return r, g, applyRecords(q, r.findUsers(g.ID), nil)
	}
	return r, g, cloudsim.Errorf(cloudsim.Conflict, "other callers change the target group %s at the same time: repeat the request", wanted)
}

// modifyTargetGroup changes the health check of a target group.
func modifyTargetGroup(q *query) (any, error) {
	wanted := q.requiredText("TargetGroupArn")
	if q.err != nil {
		return nil, q.err
	}
	r, g, err := changeTargetGroup(q, wanted, func(g *targetGroup) error {
		attempt := *q // each attempt decodes the parameters again, because absent parameters keep the latest values of the health check
		attempt.left = maps.Clone(q.left)
		attempt.changeHealthCheck(&g.Doc.HealthCheck)
		return attempt.finish()
	})
	if err != nil {
		return nil, err
	}
	return targetGroupAnswer(q, r, []targetGroup{g}, "")
}

// deleteTargetGroup deletes a target group. It returns an error if a load balancer uses the target
// group.
func deleteTargetGroup(q *query) (any, error) {
	wanted := q.requiredText("TargetGroupArn")
	if err := q.finish(); err != nil {
		return nil, err
	}
	r, err := readRouting(q)
	if err != nil {
		return nil, err
	}
	g, err := r.findTargetGroup(q, wanted)
	if failureOf(err).Code == "TargetGroupNotFound" {
		return emptyAnswer(q), nil // AWS deletes a target group that does not exist without an error
	}
	if err != nil {
		return nil, err
	}
	live, err := listNetworkLoadBalancers(q)
	if err != nil {
		return nil, err
	}
	if users := r.findLiveUsers(live, g.ID); len(users) > 0 {
		return nil, coded(http.StatusBadRequest, "ResourceInUse", "a listener of the load balancer "+loadBalancerARN(users[0])+" uses the target group "+wanted+": delete the listener first")
	}
	// If a client of the cloud's own API deletes a load balancer, the records of its listeners
	// remain. Delete the remaining records that contain the id of the target group.
	if err := deleteListenerRecords(q, r.listeners, func(li networkListener) bool { return li.Doc.TargetGroup == g.ID }); err != nil {
		return nil, err
	}
	if err := q.Cloud.DeleteRecord(q.Context(), g.ID, 0); err != nil && !errors.Is(err, cloudsim.NotFound) {
		return nil, err
	}
	return emptyAnswer(q), nil
}
