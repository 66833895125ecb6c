// Command cloudconform checks whether a cloud controller manager fulfills the contract of Kubernetes.
// It has the same commands as 'allinone conform', and contains no cloud and no CCM of this project.
package main

import (
	"os"

	"github.com/cloudsim-dev/allinone/cmd/allinone/standalone"
)

func main() {
	os.Exit(standalone.Conform(os.Getenv, os.Stdin, os.Stdout, os.Stderr, os.Args[1:]))
}
