package real

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cloudsim-dev/allinone/lab/real/archive"
)

// Mirror is a registry from which machines pull the images of another registry.
type Mirror struct {
	Host string // the registry in image names, with its port if the names contain one
	URL  string // URL of the mirror, with the scheme http or https
}

// ParseMirror parses the form HOST=URL. Its errors contain neither the user nor the password of the
// URL. They also omit the text before the first "=". If the caller omits HOST, this text is a part
// of the URL, and can contain a password.
func ParseMirror(s string) (Mirror, error) {
	host, address, ok := strings.Cut(s, "=")
	m := Mirror{host, address}
	switch {
	case !ok || host == "" || address == "":
		return m, errors.New("want HOST=URL, for example docker.io=https://mirror.example.com")
	case strings.ContainsAny(host, "/ \t\"'\\") || strings.HasPrefix(host, "."):
		return m, errors.New("the part before = is not the registry of an image name, such as docker.io or registry.example.com:5000")
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return m, errors.New("the URL of the mirror is not valid") // err can contain a part of a password
	case u.Scheme != "http" && u.Scheme != "https":
		return m, errors.New("the URL of the mirror must begin with http:// or https://")
	case u.Hostname() == "":
		return m, errors.New("the URL of the mirror has no host")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return m, errors.New("the URL of the mirror may have only a scheme, a host, a port and a path")
	case OnLoopback(u):
		return m, fmt.Errorf("machines cannot reach %s, because it is on the loopback of this host: run the mirror on another computer", u.Host)
	}
	return m, nil
}

// Serves reports whether machines ask the mirror first when they pull this image.
func (m Mirror) Serves(image string) bool {
	name, err := archive.FullName(image)
	return err == nil && strings.HasPrefix(name, m.Host+"/")
}

// OnLoopback reports whether a URL points to the loopback interface of this host.
func OnLoopback(u *url.URL) bool {
	a, err := netip.ParseAddr(u.Hostname())
	return err == nil && a.IsLoopback() || strings.EqualFold(u.Hostname(), "localhost")
}

// writeMirrors deletes containerd's settings for all registries, and writes settings for the given
// mirrors. containerd asks the mirrors of a registry in the given order. If all mirrors fail,
// containerd asks the registry.
func (f folder) writeMirrors(mirrors []Mirror) error {
	if err := f.remove(registriesDir); err != nil {
		return err
	}
	files := map[string][]byte{}
	for i, m := range mirrors {
		if slices.Contains(mirrors[:i], m) {
			continue // two equal tables make the file invalid, and containerd could pull no image of the registry
		}
		path := filepath.Join(m.Host, "hosts.toml")
		files[path] = fmt.Appendf(files[path], "[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", m.URL)
	}
	return f.writeAll(registriesDir, files)
}
