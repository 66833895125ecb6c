package cli

import (
	"net"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// IsHostPort reports whether s has the form HOST:PORT. HOST must not be empty. PORT is a number
// from 1 to 65535.
func IsHostPort(s string) bool {
	host, port, err := net.SplitHostPort(s)
	n, bits := strconv.ParseUint(port, 10, 16)
	return err == nil && bits == nil && host != "" && n > 0
}

// BadFlag returns an Invalid error for the value of a flag. The message contains the value and the
// valid form.
func BadFlag(flag, value, want string) error {
	return cloudsim.Errorf(cloudsim.Invalid, "--%s %q: want %s", flag, value, want)
}

// ParseLabels parses words of the form KEY=VALUE. It also accepts KEY==VALUE, as in kubectl's
// selectors. It returns an error if a key has two different values.
func ParseLabels(flag string, words []string) (map[string]string, error) {
	if len(words) == 0 {
		return nil, nil
	}
	labels := make(map[string]string, len(words))
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok || key == "" || strings.HasSuffix(key, "!") {
			return nil, BadFlag(flag, w, "KEY=VALUE")
		}
		value = strings.TrimPrefix(value, "=")
		if have, twice := labels[key]; twice && have != value {
			return nil, cloudsim.Errorf(cloudsim.Invalid, "--%s: %s is given as %q and as %q", flag, key, have, value)
		}
		if !utf8.ValidString(value) {
			return nil, BadFlag(flag, w, "UTF-8 text")
		}
		labels[key] = value
	}
	return labels, nil
}

// Fixed returns a shell completion for a fixed list of words.
func Fixed[S ~string](words ...S) cobra.CompletionFunc {
	all := make([]cobra.Completion, len(words))
	for i, w := range words {
		all[i] = string(w)
	}
	return cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp)
}

// Instant parses a time in RFC 3339 and returns it in UTC. It returns nil for "".
func Instant(flag, s string) (*time.Time, error) {
	if s == "" {
		return nil, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return nil, BadFlag(flag, s, "a time such as 2030-01-31T12:00:00Z")
	}
	t = t.UTC()
	return &t, nil
}

// ParseQuotas parses and validates the words of a flag. Each word has the form NAME=LIMIT.
func ParseQuotas(flag string, words []string) (map[cloudsim.QuotaName]int64, error) {
	limits := map[cloudsim.QuotaName]int64{}
	for _, w := range words {
		name, limit, _ := strings.Cut(w, "=")
		n, err := strconv.ParseInt(limit, 10, 64)
		if err != nil {
			return nil, BadFlag(flag, w, "NAME=LIMIT, e.g. instances=10")
		}
		limits[cloudsim.QuotaName(name)] = n
	}
	return limits, cloudsim.ValidateQuotas(limits)
}

const RateForm = "PERSECOND:BURST, e.g. 10:20, or off"

// ParseRate parses a rate limit in the form PERSECOND:BURST. For "off" and for "", it
// returns the zero Rate. The caller validates the numbers.
func ParseRate(flag, s string) (r cloudsim.Rate, err error) {
	if s == "off" || s == "" {
		return r, nil
	}
	per, burst, _ := strings.Cut(s, ":")
	var err1, err2 error
	r.PerSecond, err1 = strconv.ParseFloat(per, 64)
	r.Burst, err2 = strconv.Atoi(burst)
	if err1 != nil || err2 != nil {
		return r, BadFlag(flag, s, RateForm)
	}
	return r, nil
}

// PodFlags contains the flags for the pod ranges of a network.
type PodFlags struct {
	given       *pflag.FlagSet
	ranges      []string
	mask, mask6 int
}

// Flags adds the flags to f.
func (p *PodFlags) Flags(f *pflag.FlagSet) {
	p.given = f
	f.StringSliceVar(&p.ranges, "pod-range", nil, "`RANGE` from which each new instance gets a range for its pods, such as 10.244.0.0/16; at most one for each address family")
	f.IntVar(&p.mask, "pod-mask", 0, "prefix length `BITS` of an instance's IPv4 pod range (default 24)")
	f.IntVar(&p.mask6, "pod-mask6", 0, "prefix length `BITS` of an instance's IPv6 pod range (default 64)")
}

// Apply writes the values of the flags on the command line into r. If the command line contains
// --pod-range, Apply first clears all fields of r. The cloud validates the result.
func (p *PodFlags) Apply(r *cloudsim.PodRanges) error {
	if p.given != nil && p.given.Changed("pod-range") {
		*r = cloudsim.PodRanges{}
		for _, s := range p.ranges {
			in := &r.IPv4
			if strings.Contains(s, ":") {
				in = &r.IPv6
			}
			if *in != "" {
				return BadFlag("pod-range", s, "at most one range of each address family")
			}
			*in = s
		}
	}
	if p.mask != 0 {
		r.IPv4Mask = p.mask
	}
	if p.mask6 != 0 {
		r.IPv6Mask = p.mask6
	}
	return nil
}
