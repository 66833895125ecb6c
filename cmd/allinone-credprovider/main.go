// Command allinone-credprovider is `allinone credprovider` in a file of its
// own, for the kubelet to run: it starts in a fifth of the time, because
// nothing of Kubernetes or the cloud's server is linked into it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/cloudsim-dev/allinone/credprovider"
)

func main() {
	config := flag.String("config", credprovider.DefaultConfigFile, "the plugin's configuration")
	flag.Usage = func() {
		fmt.Fprintf(os.Stderr, "The kubelet runs it, with a request on standard input; 'allinone credprovider --help' says more.\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := credprovider.Main(context.Background(), *config, flag.Args(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "allinone-credprovider: "+err.Error())
		os.Exit(1)
	}
}
