package lab

import (
	"os"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// WriteKubeconfig writes the kubeconfig of a client to path, with mode 0600. The file contains the
// client's certificate and key. The argument server is the URL of the API server, and client is the
// name of the certificate.
func (p PKI) WriteKubeconfig(path, server, client string) error {
	raw, err := p.kubeconfig(server, client)
	if err != nil {
		return err
	}
	return WriteFile(path, raw)
}

// kubeconfig returns a kubeconfig for a client. It reads the certificates and the key of the client
// from p.Dir.
func (p PKI) kubeconfig(server, client string) ([]byte, error) {
	var raw [3][]byte
	for i, file := range []string{p.CertFile(ClusterCA), p.CertFile(client), p.KeyFile(client)} {
		var err error
		if raw[i], err = os.ReadFile(file); err != nil {
			return nil, err
		}
	}
	return encodeKubeconfig(server, client, raw[0], raw[1], raw[2])
}

// encodeKubeconfig returns a kubeconfig with the given certificates and key, which are in PEM
// format.
func encodeKubeconfig(server, client string, ca, certificate, key []byte) ([]byte, error) {
	c := api.NewConfig()
	c.Clusters["cloudsim"] = &api.Cluster{Server: server, CertificateAuthorityData: ca}
	c.AuthInfos[client] = &api.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	c.Contexts["cloudsim"] = &api.Context{Cluster: "cloudsim", AuthInfo: client}
	c.CurrentContext = "cloudsim"
	return clientcmd.Write(*c)
}
