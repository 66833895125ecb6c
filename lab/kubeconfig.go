package lab

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes a kubeconfig with embedded certificates and keys, mode 0600.
func (p pki) writeKubeconfig(path, server, client string) error {
	var raw [3][]byte
	for i, file := range []string{p.crt(clusterCA), p.crt(client), p.key(client)} {
		var err error
		if raw[i], err = os.ReadFile(file); err != nil {
			return err
		}
	}
	c := api.NewConfig()
	c.Clusters["cloudsim"] = &api.Cluster{Server: server, CertificateAuthorityData: raw[0]}
	c.AuthInfos[client] = &api.AuthInfo{ClientCertificateData: raw[1], ClientKeyData: raw[2]}
	c.Contexts["cloudsim"] = &api.Context{Cluster: "cloudsim", AuthInfo: client}
	c.CurrentContext = "cloudsim"
	out, err := clientcmd.Write(*c)
	if err != nil {
		return err
	}
	return writeFile(path, out)
}

// envScript returns a shell script that sets the variables of the lab.
func envScript(d Dir, cloudURL string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# . %s\n", quote(d.EnvFile()))
	fmt.Fprintf(&b, "export KUBECONFIG=%s\n", quote(d.Kubeconfig()))
	fmt.Fprintf(&b, "export CLOUDSIM_URL=%s\n", quote(cloudURL))
	fmt.Fprintf(&b, "export CLOUDSIM_TOKEN_FILE=%s\n", quote(d.AdminToken()))
	fmt.Fprintf(&b, "export CLOUDSIM_DATA_DIR=%s\n", quote(string(d)))
	fmt.Fprintf(&b, "export PATH=%s:\"$PATH\"\n", quote(d.Bin()))
	return b.String()
}

// quote returns s as one quoted word for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
