package restfuzz

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// world contains, for each collection, the ids of objects that the cloud has returned in its
// answers.
type world struct {
	mu  sync.Mutex
	ids map[string][]string
	// ranges maps the ids of networks to their IPv4 ranges.
	ranges map[string]string
	// state is the last state that the cloud exported. It is the body of import requests.
	state []byte
}

// maxKept is the maximum number of objects that a world keeps for each collection. A world keeps
// the newest objects.
const maxKept = 40

func (w *world) add(collection, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.ids[collection], id) {
		return
	}
	if w.ids[collection] = append(w.ids[collection], id); len(w.ids[collection]) > maxKept {
		w.ids[collection] = w.ids[collection][1:]
	}
}

func (w *world) remove(collection, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids[collection] = slices.DeleteFunc(w.ids[collection], func(known string) bool { return known == id })
}

// generator generates requests. Only one goroutine may use it.
type generator struct {
	*rand.Rand
	spec  spec
	world *world
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g *generator, all ...T) T { return all[g.IntN(len(all))] }

// id returns the id of a random object of a collection. If the world has no object of this
// collection, id returns an id that does not exist.
func (g *generator) id(collection string) string {
	g.world.mu.Lock()
	defer g.world.mu.Unlock()
	known := g.world.ids[collection]
	if len(known) == 0 {
		return "unknown-1"
	}
	return known[g.IntN(len(known))]
}

func (g *generator) name() string { return fmt.Sprintf("%c%d", 'a'+g.IntN(26), g.IntN(100_000)) }

// collectionOf contains the properties that refer to objects. It maps each of these properties to
// the collection of the objects.
var collectionOf = map[string]string{
	"zone": "zones", "region": "regions", "network": "networks", "subnet": "subnets", "instance": "instances", "nextHop": "instances",
	"sourceDisk": "disks", "sourceSnapshot": "snapshots", "disk": "disks", "disks": "disks", "addresses": "addresses",
	"serviceAccount": "service-accounts", "account": "service-accounts", "role": "roles", "project": "projects",
	"replicaZones": "zones", "repositories": "repositories",
}

// specialValues returns a value for a property if the schema alone does not describe the valid
// values. A case for "schemaName.property" takes precedence over a case for the property alone. The
// value nil means that generator.object leaves the property out. If no case applies, specialValues
// returns false.
func (g *generator) specialValues(schemaName, property string) (any, bool) {
	private := func(bits int) string {
		return fmt.Sprintf("10.%d.%d.0/%d", g.IntN(256), g.IntN(256)&^(1<<max(0, 24-bits)-1), bits)
	}
	switch schemaName + "." + property {
	case "CreateNetwork.ipv4":
		return private(16), true
	case "CreateSubnet.ipv4":
		return private(24), true
	case "CreateNetwork.ipv6", "CreateSubnet.ipv6":
		return fmt.Sprintf("fd00:%x::/%d", g.IntN(1<<16), pick(g, 48, 56, 64)), true
	case "PodRanges.ipv4":
		return private(16), true
	case "PodRanges.ipv4Mask":
		return 24, true
	case "PodRanges.ipv6":
		return fmt.Sprintf("fd01:%x::/56", g.IntN(1<<16)), true
	case "PodRanges.ipv6Mask":
		return 64, true
	case "CreateSubnet.network":
		return nil, true // the function dropAlternatives chooses the network together with the range
	case "CreateDisk.zone", "CreateInstance.zone", "CreateSubnet.zone":
		if g.chance(80) { // a disk can be attached to an instance in the same zone
			return "sim-1a", true
		}
	case "CreateRoute.network":
		return nil, true
	case "CreateRoute.destination":
		return private(24), true
	case "CreateDisk.type", "ModifyDisk.type":
		return g.id("disk-types"), true
	case "CreateInstance.type":
		return g.id("instance-types"), true
	case "CreateInstance.address", "Target.ip":
		return fmt.Sprintf("10.%d.%d.%d", g.IntN(256), g.IntN(256), g.IntN(256)), true
	case "CreateDisk.sizeGiB", "ResizeDisk.sizeGiB", "SetDiskPool.sizeGiB":
		return 1 + g.IntN(64), true
	case "CreateDisk.iops", "ModifyDisk.iops":
		return 3000 + g.IntN(1000), true
	case "CreateDisk.throughputMiBps", "ModifyDisk.throughputMiBps":
		return 125 + g.IntN(100), true
	case "CreateWorkloadTrust.serviceAccount", "CreateWorkloadTrust.namespace":
		return g.name(), true
	case "CreateWorkloadTrust.issuer":
		return "https://issuer.example/" + g.name(), true
	case "CreateWorkloadTrust.keys":
		return trustKeys, true
	case "CreateRole.permissions":
		return []string{pick(g, "instances.list", "disks.*", "*.get")}, true
	case "CreateToken.role":
		return pick(g, "reader", "writer", "admin"), true
	case "SetMetadataTree.prefix", "MetadataLeaf.path", "MetadataSession.path":
		return "/" + g.name() + "/" + g.name(), true
	case "CreateHold.kind", "WorkDuration.kind":
		return pick(g, "instance", "disk", "loadBalancer", "snapshot"), true
	case "CreateHold.verb", "WorkDuration.verb":
		return pick(g, "create", "delete", "start", "stop", "attach"), true
	case "WorkDuration.millis":
		return g.IntN(20), true
	case "FaultMatch.operation":
		return pick(g, "instances.create", "disks.attach", "*.list"), true
	case "FaultMatch.caller": // no caller has this name, so no fault answers a request
		return "absent-caller", true
	case "FaultMatch.target", "FaultMatch.zone", "FaultMatch.type", "CreateHold.target", "CreateRoleBinding.resource", "FaultWhen.until", "FaultWhen.from":
		return nil, true
	case "FaultEffect.status":
		return pick(g, 500, 503, 429), true
	case "Rate.perSecond", "Rate.burst":
		return 100_000, true
	case "SetQuota.limit":
		return 1000 + g.IntN(1000), true
	case "SetClock.rate":
		return pick(g, 1.0, 2.0), true
	case "SetClock.aheadSeconds", "AdvanceClock.seconds":
		return g.IntN(100), true
	case "SetClock.time":
		return nil, true
	case "HealthCheck.path":
		return "/healthz", true
	case "HealthCheck.expectedCodes":
		return "200-299", true
	case "CreateRegistryCredential.ttlSeconds", "CreateToken.ttlSeconds":
		return 60 + g.IntN(600), true
	}
	switch property {
	case "name":
		return g.name(), true
	case "labels":
		return map[string]string{g.name(): g.name()}, true
	case "families":
		return pick(g, []string{"ipv4"}, []string{"ipv6"}, []string{"ipv4", "ipv6"}), true
	case "sourceRanges":
		return []string{"192.0.2.0/24"}, true
	case "audience":
		return "https://audience.example", true
	}
	return nil, false
}

// trustKeys is a JSON Web Key Set (RFC 7517) with the P-256 key of RFC 7515,
// appendix A.3.
const trustKeys = `{"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","use":"sig","kid":"1","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}`

// value returns a random value of the schema s for the given property. The argument schemaName is
// the name of the schema that contains the property.
func (g *generator) value(s *schema, schemaName, property string) any {
	if v, ok := g.specialValues(schemaName, property); ok {
		return v
	}
	if s.Ref != "" {
		schemaName = s.Ref[strings.LastIndex(s.Ref, "/")+1:]
	}
	s = g.spec.resolve(s)
	switch {
	case len(s.Enum) > 0:
		return s.Enum[g.IntN(len(s.Enum))]
	case s.allowsType("object"):
		return g.object(s, schemaName)
	case s.allowsType("array"):
		n := 1 + g.IntN(2)
		if property == "targets" || property == "disks" { // the elements must differ
			n = 1
		}
		if s.MaxItems != nil {
			n = min(n, *s.MaxItems)
		}
		all := []any{}
		for range n {
			all = append(all, g.value(s.Items, schemaName, property))
		}
		return all
	case s.allowsType("integer"), s.allowsType("number"):
		low, high := 0.0, 100.0
		if s.Minimum != nil {
			low = *s.Minimum
		}
		if s.Maximum != nil {
			high = *s.Maximum
		}
		return int64(low + g.Float64()*(high-low))
	case s.allowsType("boolean"):
		return g.chance(30)
	case s.Format == "date-time":
		return "2030-01-01T00:00:00Z"
	}
	if collection, ok := collectionOf[property]; ok {
		return g.id(collection)
	}
	return g.name()
}

// object returns a random object of the schema s, which has the name schemaName. The object
// contains all required properties and all properties in usefulProperties. It contains each other
// optional property with a probability of one in four. The object omits the properties for which
// generator.value returns nil. At the end, dropAlternatives can change the object.
func (g *generator) object(s *schema, schemaName string) map[string]any {
	o := map[string]any{}
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.Sort(names) // the order of random numbers must not depend on the map
	for _, name := range names {
		if name == "$schema" || !slices.Contains(s.Required, name) && !g.chance(25) && !usefulProperties[schemaName+"."+name] {
			continue
		}
		if v := g.value(s.Properties[name], schemaName, name); v != nil {
			o[name] = v
		}
	}
	dropAlternatives(g, schemaName, o)
	return o
}

// usefulProperties holds the optional properties that generator.object handles like required
// properties.
var usefulProperties = map[string]bool{
	"FaultMatch.caller": true, "CreateDisk.sizeGiB": true, "CreateDisk.zone": true, "CreateSubnet.zone": true,
	"ModifyDisk.type": true, "RateLimits.read": true, "RateLimits.write": true, "CreateToken.role": true,
}

// dropAlternatives makes most random objects valid. For some schemas, it removes properties that
// can conflict with other properties, and sets valid values. In some random objects it keeps the
// conflicting properties, so the cloud also gets invalid objects.
func dropAlternatives(g *generator, schemaName string, o map[string]any) {
	drop := func(names ...string) {
		for _, name := range names {
			delete(o, name)
		}
	}
	switch schemaName {
	case "CreateToken":
		if g.chance(50) {
			drop("serviceAccount", "project")
		} else if _, ok := o["serviceAccount"]; ok {
			drop("role", "project")
		}
	case "SetClock":
		if o["real"] == true || g.chance(70) {
			for name := range o {
				delete(o, name)
			}
			o["real"] = true
		} else {
			drop("real", "aheadSeconds")
		}
	case "CreateDisk":
		if g.chance(80) {
			drop("sourceDisk", "sourceSnapshot", "iops", "throughputMiBps", "replicaZones")
		}
	case "CreateInstance":
		if g.chance(80) {
			drop("address", "network", "subnet")
		}
	case "CreateLoadBalancer", "UpdateLoadBalancer":
		if g.chance(80) {
			drop("addresses", "families")
		}
	case "Target":
		if g.chance(80) {
			drop("ip")
		}
	case "CreateSubnet":
		g.world.mu.Lock()
		for network, ipRange := range g.world.ranges { // any network
			o["network"], o["ipv4"] = network, strings.Replace(ipRange, ".0.0/", fmt.Sprintf(".%d.0/", g.IntN(256)), 1)
			o["ipv4"] = o["ipv4"].(string)[:strings.Index(o["ipv4"].(string), "/")] + "/24"
			break
		}
		g.world.mu.Unlock()
		drop("ipv6")
		if g.chance(50) {
			drop("region")
		} else {
			drop("zone")
		}
	case "CreateNetwork", "UpdateNetwork":
		if g.chance(70) {
			drop("podRanges", "ipv6")
		}
	case "Listener":
		if g.chance(70) {
			drop("targets", "healthCheck")
		}
		if o["protocol"] == "udp" {
			drop("proxyProtocol", "mode", "idleTimeoutSeconds")
		}
	case "HealthCheck":
		switch o["protocol"] {
		case "none":
			drop("port", "path", "expectedCodes", "healthyThreshold", "unhealthyThreshold")
		case "tcp":
			drop("path", "expectedCodes")
		}
		drop("intervalMillis", "timeoutMillis") // the interval must exceed the timeout
	case "CreateFault":
		o["effect"] = map[string]any{"type": "error", "kind": "unavailable"}
		drop("when")
	case "CreateRoleBinding":
		o["role"] = pick(g, "reader", "writer")
	}
}

type request struct {
	op          operation
	target      string // id or name of the object in the path; "" if the path contains no object
	path        string
	body        []byte
	contentType string
	mutated     bool
}

// request generates a request for an operation. If mutate is true, request makes random changes to
// the body, and sometimes to the path or the query.
func (g *generator) request(op operation, mutate bool) request {
	r := request{op: op, path: op.path}
	if strings.Contains(r.path, "{id}") {
		r.target = g.id(op.collection())
		if op.id == "quotas.set" {
			r.target = pick(g, "instances", "disks", "loadBalancers", "snapshots")
		}
		if mutate && g.chance(10) {
			r.target = pick(g, "..", "%00", "i-999999", strings.Repeat("x", 300), "ünïcode")
		}
		r.path = strings.Replace(r.path, "{id}", url.PathEscape(r.target), 1)
	}
	if strings.Contains(r.path, "{name}") {
		r.target = g.id("states")
		if op.id == "states.import" {
			r.target = g.name()
		}
		r.path = strings.Replace(r.path, "{name}", url.PathEscape(r.target), 1)
	}
	r.path = strings.Replace(r.path, "{type}", pick(g, "maintenance", "preemption"), 1)
	r.path += g.queryString(op, mutate)
	switch {
	case op.binary:
		g.world.mu.Lock()
		r.body, r.contentType = slices.Clone(g.world.state), "application/octet-stream"
		g.world.mu.Unlock()
		if r.mutated = mutate && len(r.body) > 0; r.mutated {
			r.body[g.IntN(len(r.body))] ^= byte(1 + g.IntN(255))
		}
	case op.body != nil:
		schemaName := op.body.Ref[strings.LastIndex(op.body.Ref, "/")+1:]
		o := g.object(g.spec.resolve(op.body), schemaName)
		r.contentType = "application/json"
		if r.mutated = mutate; mutate {
			r.body = g.mutate(o)
		} else {
			r.body, _ = json.Marshal(o) // cannot fail for such values
		}
	}
	return r
}

// queryString returns the query parameters that an operation needs. Sometimes it adds optional
// parameters.
func (g *generator) queryString(op operation, mutate bool) string {
	q := url.Values{}
	for _, name := range op.query {
		switch name {
		case "object":
			q.Set(name, g.id(pick(g, "instances", "disks", "load-balancers")))
		case "from":
			q.Set(name, g.id("states"))
		case "recordsOnly":
			q.Set(name, "true")
		case "limit":
			if g.chance(30) {
				q.Set(name, fmt.Sprint(1+g.IntN(100)))
			}
		case "waitSeconds", "since", "to", "request", "after":
		default:
			if mutate && g.chance(5) {
				q.Set(name, g.name())
			}
		}
		if mutate && g.chance(5) {
			q.Set(name, pick(g, "-1", "99999999999999999999", "\x00", "*", strings.Repeat("y", 500)))
		}
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// mutate returns o as a JSON body with one or two random changes. The body can still be valid.
func (g *generator) mutate(o map[string]any) []byte {
	names := make([]string, 0, len(o))
	for name := range o {
		names = append(names, name)
	}
	slices.Sort(names)
	odd := []any{nil, -1, 1e300, "", strings.Repeat("z", 100_000), []any{}, map[string]any{"a": []any{1}}, true, "\u0000", "../../etc", 3.5}
	switch {
	case len(names) == 0 || g.chance(20):
		o["unknown"] = odd[g.IntN(len(odd))]
	case g.chance(20):
		delete(o, names[g.IntN(len(names))])
	default:
		o[names[g.IntN(len(names))]] = odd[g.IntN(len(odd))]
	}
	raw, _ := json.Marshal(o) // cannot fail for such values
	switch {
	case g.chance(10):
		return raw[:g.IntN(len(raw))]
	case g.chance(10):
		raw[g.IntN(len(raw))] ^= byte(1 + g.IntN(255))
	case g.chance(5):
		return []byte(strings.Repeat("[", 50_000))
	}
	return raw
}
