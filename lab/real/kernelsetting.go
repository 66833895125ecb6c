package real

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/vishvananda/netlink"
)

// Paths of kernel settings, relative to /proc/sys.
const (
	forward4 = "net/ipv4/ip_forward"
	forward6 = "net/ipv6/conf/all/forwarding"
)

// kernelSetting is a kernel setting: a path relative to /proc/sys, and a value.
type kernelSetting struct{ path, value string }

// neededSettings returns the host's settings that forwarding needs, in the order in which openHost
// changes them. A host that forwards IPv6 accepts router advertisements only if the setting
// accept_ra is 2. See the kernel's ip-sysctl documentation. Without these advertisements, the host
// would lose its default route.
func (i Internet) neededSettings() (all []kernelSetting, err error) {
	if i.IPv4 {
		all = append(all, kernelSetting{forward4, "1"})
	}
	if !i.IPv6 {
		return all, nil
	}
	links, err := defaultLinks(netlink.FAMILY_V6)
	if err != nil {
		return nil, err
	}
	for _, index := range links {
		l, err := netlink.LinkByIndex(index)
		if err != nil {
			return nil, fmt.Errorf("link of the IPv6 default route: %w", err)
		}
		path := "net/ipv6/conf/" + l.Attrs().Name + "/accept_ra"
		if now, err := readSetting(path); err == nil && now != "0" { // the value is 1, or 2 if another lab has changed it
			all = append(all, kernelSetting{path, "2"})
		}
	}
	return append(all, kernelSetting{forward6, "1"}), nil
}

func readSetting(path string) (string, error) {
	raw, err := os.ReadFile(filepath.Join("/proc/sys", path))
	return strings.TrimSpace(string(raw)), err
}

func writeSetting(path, value string) error {
	if now, err := readSetting(path); err != nil || now == value {
		return err
	}
	if err := os.WriteFile(filepath.Join("/proc/sys", path), []byte(value), 0o644); err != nil { //nolint:gosec // the kernel created the file
		return fmt.Errorf("setting %s to %s: %w", path, value, err)
	}
	return nil
}

// originalValue matches a comment in internet.nft that contains the original value of a setting.
var originalValue = regexp.MustCompile(`comment "(net/[^"=]+)=([^"]*)"`)

// storedValues returns the original values of the host's settings. The keys of the map are the
// paths of the settings. storedValues reads the values from the comments in the nftables table of a
// lab.
func storedValues(table string) (map[string]string, error) {
	out, err := nft("", "list", "chain", "inet", table, "original")
	all := map[string]string{}
	for _, m := range originalValue.FindAllStringSubmatch(out, -1) {
		all[m[1]] = m[2]
	}
	return all, err
}

// originalValues returns the values that the wanted settings had before a lab changed them. Each
// lab stores these values in comments of its nftables table. Labs on one host share the settings,
// so originalValues reads the tables of all labs.
//
// If a wanted setting is in none of the tables, no lab has changed the setting. Then the present
// value is the original value. The result contains such a setting only if its present value differs
// from the wanted value.
//
// If a user killed an earlier run of this lab, the table of this lab still exists. The result
// contains all settings in this table, even if they are not in wanted.
func originalValues(table string, wanted []kernelSetting) (map[string]string, error) {
	labs, err := tableNames()
	if err != nil {
		return nil, err
	}
	known, all := map[string]string{}, map[string]string{}
	for _, t := range labs {
		values, err := storedValues(t)
		if err != nil {
			return nil, err
		}
		for path, value := range values {
			known[path] = value
			if t == table {
				all[path] = value // closeInternet restores this setting, even if this run does not change the setting
			}
		}
	}
	for _, s := range wanted {
		now, err := readSetting(s.path)
		if err != nil {
			return nil, err
		}
		if before, ok := known[s.path]; ok {
			all[s.path] = before
		} else if now != s.value {
			all[s.path] = now
		}
	}
	return all, nil
}
