package cloudsim

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// KindMetadataTree is the kind of resource in events about metadata trees.
const KindMetadataTree ResourceKind = "metadataTree"

// Limits of metadata trees.
const (
	MaxMetadataTrees  = 20
	MaxMetadataLeaves = 100
	MaxMetadataText   = 4096 // bytes of one text
)

// MetadataTree is a set of additional paths of the metadata service, for instances that run
// software for another cloud. The metadata service serves these paths to every instance. A
// tree belongs to no project. The name of a tree is also its id.
type MetadataTree struct {
	Meta
	MetadataTreeSpec
}

// MetadataTreeSpec describes the paths of a metadata tree.
type MetadataTreeSpec struct {
	Prefix  string           `json:"prefix" maxLength:"128" doc:"Common prefix of all paths of the tree. The prefixes of two trees must not contain each other, and /v1 is reserved" example:"/hetzner/v1/metadata"`
	Session *MetadataSession `json:"session,omitempty" doc:"How a caller gets a session token. Absent: callers need no token, so a request forged by an attacker can read the tree"`
	Leaves  []MetadataLeaf   `json:"leaves" minItems:"1" maxItems:"100" doc:"Paths with their answers"`
}

// MetadataSession describes the session tokens that a client needs for the paths of a MetadataTree.
type MetadataSession struct {
	Path        string `json:"path" maxLength:"128" doc:"Path of the PUT request for a token" example:"/latest/api/token"`
	TTLHeader   string `json:"ttlHeader" maxLength:"64" doc:"Name of the header in which the PUT request contains the requested lifetime in seconds" example:"X-aws-ec2-metadata-token-ttl-seconds"`
	TokenHeader string `json:"tokenHeader" maxLength:"64" doc:"Name of the header in which each GET request contains the token" example:"X-aws-ec2-metadata-token"`
}

// MetadataLeaf is one path of a metadata tree.
type MetadataLeaf struct {
	Path string `json:"path" maxLength:"128" doc:"Path below the prefix; empty for the prefix itself. Variables in ${} stand for values of the instance" example:"/instance-id"`
	Text string `json:"text" maxLength:"4096" doc:"Answer. Variables in ${} stand for values of the instance. If the answer is empty, the service answers 404" example:"${id.number}"`
	JSON bool   `json:"json,omitempty" doc:"Whether the answer is JSON. The service then escapes the values of variables for JSON strings"`
}

// SetMetadataTree creates or replaces a metadata tree.
type SetMetadataTree struct {
	Labels map[string]string `json:"labels,omitempty"`
	MetadataTreeSpec
}

// metadataVariables maps the name of each variable to a function that returns the value
// of the variable for an instance. The path and the text of a MetadataLeaf can contain
// these variables. The map does not contain the variables labels.KEY, which stand for
// labels of the instance.
var metadataVariables = map[string]func(Instance) string{
	"id":              func(i Instance) string { return string(i.ID) },
	"name":            func(i Instance) string { return i.Name },
	"hostname":        func(i Instance) string { return i.firstAddress(AddressHostname) },
	"type":            func(i Instance) string { return i.Type },
	"zone":            func(i Instance) string { return i.Zone },
	"region":          func(i Instance) string { return i.Region },
	"project":         func(i Instance) string { return string(i.Project) },
	"provider-id":     func(i Instance) string { return i.ProviderID },
	"service-account": func(i Instance) string { return string(i.ServiceAccount) },
	"network":         func(i Instance) string { return string(i.Network) },
	"subnet":          func(i Instance) string { return string(i.Subnet) },
	"internal-ip":     func(i Instance) string { return i.firstAddress(AddressInternal) },
	"external-ip":     func(i Instance) string { return i.firstAddress(AddressExternal) },
	"mac":             Instance.mac,
}

// accessKeyVariables contains the variables with the temporary credentials of the
// instance's service account. The credentials are secret, so a tree with such a variable
// must require session tokens.
var accessKeyVariables = map[string]func(Token) string{
	"access-key.id":            func(t Token) string { return string(t.AccessKey().ID) },
	"access-key.secret":        func(t Token) string { return t.AccessKey().Secret },
	"access-key.session-token": func(t Token) string { return t.Secret },
	"access-key.expires-at": func(t Token) string {
		if t.ExpiresAt == nil {
			return ""
		}
		return t.ExpiresAt.UTC().Format(time.RFC3339)
	},
}

// MAC returns the hardware address of the network interface with the address ip. The result
// depends only on ip, so that the ARP caches of other machines stay valid when a machine
// restarts. MAC returns nil if ip is not an IPv4 address.
func MAC(ip netip.Addr) net.HardwareAddr {
	if !ip.Is4() {
		return nil
	}
	a := ip.As4()
	return net.HardwareAddr{2, 0, a[0], a[1], a[2], a[3]}
}

func (i Instance) mac() string {
	ip, _ := netip.ParseAddr(i.firstAddress(AddressInternal)) // without an address there is no MAC
	return MAC(ip).String()
}

// numberedVariables lists the variables whose value is an id, such as i-00002a. Each of
// these variables also exists with a suffix. With the suffix .number, the value is the
// number in the id as decimal text. With the suffix .decN or .hexN, the value is this
// number as decimal or hexadecimal text with at least N digits.
var numberedVariables = []string{"id", "network", "subnet", "project", "service-account"}

func (i Instance) firstAddress(t InstanceAddressType) string {
	for _, a := range i.Addresses {
		if a.Type == t {
			return a.Address
		}
	}
	return ""
}

var (
	variableRE = regexp.MustCompile(`\$\{([^{}$]*)\}`)
	digitsRE   = regexp.MustCompile(`^(dec|hex)([1-9][0-9]?)$`)
	headerRE   = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$`)
	pathRE     = regexp.MustCompile(`^(/[-._~A-Za-z0-9]+)+$`)
)

// metadataVariable returns the value of a variable for an instance. It returns false if the name
// is unknown or is a key of accessKeyVariables.
func metadataVariable(name string, i Instance) (string, bool) {
	if key, ok := strings.CutPrefix(name, "labels."); ok {
		return i.Labels[key], labelKeyRE.MatchString(key)
	}
	if of, ok := metadataVariables[name]; ok {
		return of(i), true
	}
	base, suffix, _ := strings.Cut(name, ".")
	if !slices.Contains(numberedVariables, base) {
		return "", false
	}
	digits := digitsRE.FindStringSubmatch(suffix)
	if suffix != "number" && digits == nil {
		return "", false
	}
	id := metadataVariables[base](i)
	n, err := strconv.ParseUint(id[strings.LastIndexByte(id, '-')+1:], 16, 64)
	switch {
	case err != nil:
		return "", true // the instance has no such id
	case digits == nil:
		return strconv.FormatUint(n, 10), true
	case digits[1] == "dec":
		return fmt.Sprintf("%0"+digits[2]+"d", n), true
	}
	return fmt.Sprintf("%0"+digits[2]+"x", n), true
}

// Credentials reports whether the answer of the leaf contains temporary credentials of the
// instance's service account.
func (l MetadataLeaf) Credentials() bool {
	for _, found := range variableRE.FindAllStringSubmatch(l.Text, -1) {
		if accessKeyVariables[found[1]] != nil {
			return true
		}
	}
	return false
}

// PathOf returns the path of the leaf. It replaces each variable in the path with the value of this
// variable for the instance i.
func (l MetadataLeaf) PathOf(i Instance) string {
	return MetadataLeaf{Text: l.Path}.Render(i, Token{})
}

// Render returns the answer that the instance i gets at the path of the leaf. If the answer
// contains credentials, Render computes them from t.ID, t.Secret and t.ExpiresAt. Otherwise it does
// not use t.
func (l MetadataLeaf) Render(i Instance, t Token) string {
	return variableRE.ReplaceAllStringFunc(l.Text, func(s string) string {
		name := s[len("${") : len(s)-len("}")]
		v, _ := metadataVariable(name, i)
		if of, ok := accessKeyVariables[name]; ok {
			v = of(t)
		}
		if !l.JSON {
			return v
		}
		quoted, err := json.Marshal(v)
		if err != nil {
			return ""
		}
		return string(quoted[1 : len(quoted)-1])
	})
}

// CheckMetadataTreeName returns Invalid if name cannot be the name of a
// metadata tree.
func CheckMetadataTreeName(name string) error {
	var c checks
	c.name("name", name)
	return c.err()
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r SetMetadataTree) Validate() error {
	var c checks
	c.labels(r.Labels)
	c.metadataPath("prefix", r.Prefix)
	c.notReserved("prefix", r.Prefix)
	if s := r.Session; s != nil {
		c.metadataPath("session.path", s.Path)
		c.notReserved("session.path", s.Path)
		c.header("session.ttlHeader", s.TTLHeader)
		c.header("session.tokenHeader", s.TokenHeader)
	}
	if len(r.Leaves) == 0 || len(r.Leaves) > MaxMetadataLeaves {
		c.addf("leaves", "must have 1 to %d entries, got %d", MaxMetadataLeaves, len(r.Leaves))
		return c.err()
	}
	seen := map[string]int{}
	for n, l := range r.Leaves {
		at := fmt.Sprintf("leaves[%d].", n)
		if l.Path != "" {
			c.metadataPath(at+"path", variableRE.ReplaceAllString(l.Path, "x"))
			c.metadataText(at+"path", l.Path, nil)
		}
		if first, dup := seen[l.Path]; dup {
			c.addf(at+"path", "is a duplicate: leaves[%d] also has the path %q", first, Clip(l.Path))
		} else {
			seen[l.Path] = n
		}
		c.metadataText(at+"text", l.Text, accessKeyVariables)
		if l.Credentials() && r.Session == nil {
			c.addf(at+"text", "has credentials, so the tree must have the field session")
		}
	}
	return c.err()
}

func (c *checks) metadataPath(field, s string) {
	if len(s) > 128 || !pathRE.MatchString(s) || path.Clean(s) != s {
		c.addf(field, "must be a path such as /latest/meta-data, without a final slash and with at most 128 characters; got %q", Clip(s))
	}
}

func (c *checks) notReserved(field, s string) {
	if s == "/v1" || strings.HasPrefix(s, "/v1/") {
		c.addf(field, "must not be /v1 or a path below /v1, which this cloud reserves; got %q", Clip(s))
	}
}

func (c *checks) header(field, s string) {
	if len(s) > 64 || !headerRE.MatchString(s) {
		c.addf(field, "must be the name of an HTTP header of at most 64 characters; got %q", Clip(s))
	}
}

// metadataText checks the text s and its variables. It reports an error for each variable that is
// unknown to metadataVariable and absent from the map extraVariables.
func (c *checks) metadataText(field, s string, extraVariables map[string]func(Token) string) {
	if len(s) > MaxMetadataText || !utf8.ValidString(s) {
		c.addf(field, "must be UTF-8 text of at most %d bytes, got %d", MaxMetadataText, len(s))
		return
	}
	for _, found := range variableRE.FindAllStringSubmatch(s, -1) {
		if _, ok := metadataVariable(found[1], Instance{}); !ok && extraVariables[found[1]] == nil {
			all := slices.Concat(slices.Sorted(maps.Keys(metadataVariables)), slices.Sorted(maps.Keys(extraVariables)))
			c.addf(field, "has the unknown variable %q: use labels.KEY or one of %s; the suffixes .number, .decN and .hexN are allowed for %s",
				Clip(found[1]), strings.Join(all, ", "), strings.Join(numberedVariables, ", "))
		}
	}
	if strings.Contains(variableRE.ReplaceAllString(s, ""), "${") {
		c.addf(field, "has %q without a variable and a closing brace", "${")
	}
}

// Covers reports whether p is the prefix of the tree, or a path below this prefix.
func (s MetadataTreeSpec) Covers(p string) bool {
	return p == s.Prefix || strings.HasPrefix(p, s.Prefix+"/")
}

// Conflicts reports whether the trees of s and other would have a path in common. A tree has all
// paths that it covers, and the path from which clients get its session tokens.
func (s MetadataTreeSpec) Conflicts(other MetadataTreeSpec) bool {
	own := func(s, other MetadataTreeSpec) bool {
		return s.Covers(other.Prefix) || other.Session != nil && (s.Covers(other.Session.Path) || s.Session != nil && s.Session.Path == other.Session.Path)
	}
	return own(s, other) || own(other, s)
}

// Same reports whether two specs are equal. The order of the leaves matters.
func (s MetadataTreeSpec) Same(other MetadataTreeSpec) bool {
	return s.Prefix == other.Prefix && slices.Equal(s.Leaves, other.Leaves) &&
		(s.Session == nil) == (other.Session == nil) && (s.Session == nil || *s.Session == *other.Session)
}
