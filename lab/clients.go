package lab

import (
	_ "embed"
	"fmt"
	"net/http"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// project is the cloud project of a lab's instances and load balancers.
const project = "default"

// Administrator returns a client for the lab's project, with the administrator's token.
func Administrator(url, tokenFile string) *client.Client {
	return &client.Client{
		URL: url, HTTP: &http.Client{Timeout: 10 * time.Second},
		Token: client.TokenFile(tokenFile), Project: project, UserAgent: "allinone-up",
	}
}

// ComponentClient returns a client with the token of a component's own service account.
func ComponentClient(name, url, tokenFile string) *client.Client {
	c := Administrator(url, tokenFile)
	c.Project, c.UserAgent = "", "allinone-"+name
	return c
}

// HypervisorAgent is the user agent of the hypervisor's requests to the API server. The audit log
// and the hypervisor's events contain this name.
const HypervisorAgent = "allinone-hypervisor"

// Connect returns a client for the user of a kubeconfig. The argument agent is the user
// agent. If agent is "", the client uses the default user agent.
func Connect(kubeconfig, agent string) (*kubernetes.Clientset, error) {
	conf, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	conf.QPS, conf.UserAgent = -1, agent // no rate limit: the lab has few clients, and they wait for each answer
	return kubernetes.NewForConfig(conf)
}
