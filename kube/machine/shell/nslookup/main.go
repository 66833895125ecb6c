// Command nslookup prints the addresses of a host name, or the names of an address. It uses the
// name servers and search domains in /etc/resolv.conf.
//
//	nslookup NAME|ADDRESS
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"time"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("nslookup: ")
	if len(os.Args) != 2 {
		log.Fatal("usage: nslookup NAME|ADDRESS")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	look := net.DefaultResolver.LookupHost
	if net.ParseIP(os.Args[1]) != nil {
		look = net.DefaultResolver.LookupAddr
	}
	found, err := look(ctx, os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range found {
		fmt.Println(f)
	}
}
