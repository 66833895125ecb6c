package lab

import (
	"os"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// WriteKubeconfig writes a kubeconfig with embedded certificates and keys, mode 0600.
func (p PKI) WriteKubeconfig(path, server, client string) error {
	var raw [3][]byte
	for i, file := range []string{p.CertFile(ClusterCA), p.CertFile(client), p.KeyFile(client)} {
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
	return WriteFile(path, out)
}
