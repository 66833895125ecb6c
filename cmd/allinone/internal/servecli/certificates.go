package servecli

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
	"github.com/cloudsim-dev/allinone/internal/cert"
	"github.com/cloudsim-dev/allinone/internal/shell"
)

// These are the names, without .crt and .key, of the files that the certificates command writes.
const (
	cloudCA     = "ca"
	cloudServer = "cloudsim"
)

// cloudHosts contains the host names in every certificate of the cloud's API. They are the names
// of this machine, and the names of the Service in deploy/cloudsim.
var cloudHosts = []string{"localhost", "127.0.0.1", "::1", "cloudsim", "cloudsim.kube-system", "cloudsim.kube-system.svc"}

type certificatesFlags struct {
	out   string
	hosts []string
}

// NewCertificatesCommand returns the command "allinone certificates".
func NewCertificatesCommand(e cli.Env) *cobra.Command {
	var f certificatesFlags
	cmd := &cobra.Command{
		Use:   "certificates",
		Short: "Create or renew the certificates of the cloud's API",
		Long: `Create the certificates with which a cloud serves its API over HTTPS. The command
writes these files into the folder --out, keys with mode 0600:

  ca.crt, ca.key              the certificate authority; valid for ten years
  cloudsim.crt, cloudsim.key  the cloud's certificate; valid for one year
  secrets.yaml                ca.crt, cloudsim.crt and cloudsim.key as Kubernetes objects
                              for the manifests in deploy/

If the folder has an authority, the command keeps it and renews the cloud's
certificate. Clients that trust the authority continue to work. A running cloud reads
the new certificate without a restart.

A cloud that served HTTP can keep its data directory: start the cloud with
--tls-cert-file and --tls-private-key-file, and start its clients with --ca-file.`,
		Example: `  # A cloud on this machine
  allinone certificates --out ./certificates --host cloud.example
  allinone cloudsim --tls-cert-file certificates/cloudsim.crt --tls-private-key-file certificates/cloudsim.key
  allinone cloud --cloud-url https://127.0.0.1:8180 --ca-file certificates/ca.crt instances list

  # A cloud in a cluster: deploy/README.md
  allinone certificates --out ./certificates
  kubectl apply -f certificates/secrets.yaml`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return f.run(e.Stdout, time.Now()) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.out, "out", "", "folder for the files; the command creates a missing folder")
	fl.StringSliceVar(&f.hosts, "host", nil, "additional host name or address of the cloud in the certificate (always included: "+strings.Join(cloudHosts, ", ")+")")
	_ = cmd.MarkFlagRequired("out") // error only for an unknown flag name
	_ = cmd.MarkFlagDirname("out")
	return cmd
}

func (f *certificatesFlags) run(w io.Writer, now time.Time) error {
	for _, h := range f.hosts {
		if net.ParseIP(h) == nil && len(validation.IsDNS1123Subdomain(strings.ToLower(h))) > 0 {
			return cloudsim.Misuse(cli.BadFlag("host", h, "a name or an address, such as cloud.example"))
		}
	}
	if err := os.MkdirAll(f.out, 0o700); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	ca, err := f.openAuthority(now)
	if err != nil {
		return err
	}
	leaf := &x509.Certificate{
		Subject:  pkix.Name{CommonName: cloudServer},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leaf.DNSNames, leaf.IPAddresses = cert.Names(append(append([]string(nil), cloudHosts...), f.hosts...))
	server, err := cert.Sign(leaf, ca, now)
	if err != nil {
		return err
	}
	secrets, err := secretsYAML(ca, server)
	if err != nil {
		return err
	}
	if err := errors.Join(f.writePair(cloudServer, server), f.replaceFile("secrets.yaml", secrets)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, `%s contains the certificate authority, a new certificate of the cloud (valid until %s)
and a new secrets.yaml. Use one of:

  allinone cloudsim --tls-cert-file %s --tls-private-key-file %s
  kubectl apply -f %s

Clients trust the cloud with --ca-file %s (CLOUDSIM_CA_FILE).
`, f.out, server.Cert.NotAfter.Format(time.DateOnly), shell.Word(f.path(cloudServer+".crt")), shell.Word(f.path(cloudServer+".key")),
		shell.Word(f.path("secrets.yaml")), shell.Word(f.path(cloudCA+".crt")))
	return err
}

// openAuthority returns the certificate authority in the folder. If the folder has no
// authority, the method creates a new authority. New certificates are valid for one year, so the
// method returns an error if the authority expires within one year.
func (f *certificatesFlags) openAuthority(now time.Time) (*cert.Pair, error) {
	ca, err := cert.Load(f.path(cloudCA+".crt"), f.path(cloudCA+".key"))
	_, noCert := os.Stat(f.path(cloudCA + ".crt"))
	_, noKey := os.Stat(f.path(cloudCA + ".key"))
	switch {
	case errors.Is(noCert, fs.ErrNotExist) && errors.Is(noKey, fs.ErrNotExist):
		ca, err = cert.Sign(&x509.Certificate{
			Subject: pkix.Name{CommonName: "cloudsim-ca"},
			IsCA:    true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}, nil, now)
		if err != nil {
			return nil, err
		}
		return ca, f.writePair(cloudCA, ca)
	case err != nil:
		return nil, fmt.Errorf("reading the certificate authority: %w: restore ca.crt and ca.key, or move these files away and run the command again to create a new authority", err)
	case !ca.Cert.IsCA:
		return nil, cloudsim.Errorf(cloudsim.Invalid, "reading the certificate authority: %s is not the certificate of an authority: move this file and ca.key away, and run the command again", f.path(cloudCA+".crt"))
	case now.AddDate(1, 0, 0).After(ca.Cert.NotAfter):
		return nil, cloudsim.Errorf(cloudsim.Invalid, "the certificate authority %s expires on %s, earlier than a new certificate, which is valid for one year: move ca.crt and ca.key away, run the command again to create a new authority, and give the new ca.crt to all clients",
			f.path(cloudCA+".crt"), ca.Cert.NotAfter.Format(time.DateOnly))
	}
	return ca, nil
}

func (f *certificatesFlags) path(name string) string { return filepath.Join(f.out, name) }

// writePair writes NAME.key and then NAME.crt. It writes the certificate after the key, because a
// server that watches the certificate reads both files when the certificate changes.
func (f *certificatesFlags) writePair(name string, p *cert.Pair) error {
	key, err := cert.KeyPEM(p.Key)
	if err != nil {
		return err
	}
	if err := f.replaceFile(name+".key", key); err != nil {
		return err
	}
	return f.replaceFile(name+".crt", p.CertPEM())
}

// replaceFile creates or replaces a file, with mode 0600. It writes a temporary file and renames
// it, so a reader always gets either the complete old content or the complete new content.
func (f *certificatesFlags) replaceFile(name string, content []byte) error {
	tmp, err := os.CreateTemp(f.out, "."+name+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.Write(content)
	if err := errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), f.path(name))
}

// secretsYAML returns a YAML text with the Secret and the ConfigMap that the workloads in
// deploy/ mount.
func secretsYAML(ca, server *cert.Pair) ([]byte, error) {
	key, err := cert.KeyPEM(server.Key)
	if err != nil {
		return nil, err
	}
	object := func(kind, name string, rest map[string]any) map[string]any {
		o := map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]string{"name": name, "namespace": "kube-system"}}
		for k, v := range rest {
			o[k] = v
		}
		return o
	}
	var out bytes.Buffer
	for _, o := range []map[string]any{
		object("Secret", "cloudsim-tls", map[string]any{
			"type":       "kubernetes.io/tls",
			"stringData": map[string]string{"tls.crt": string(server.CertPEM()), "tls.key": string(key)},
		}),
		object("ConfigMap", "cloudsim-ca", map[string]any{"data": map[string]string{"ca.crt": string(ca.CertPEM())}}),
	} {
		doc, err := yaml.Marshal(o)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(doc)
	}
	return out.Bytes(), nil
}
