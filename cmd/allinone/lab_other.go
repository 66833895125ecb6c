//go:build !linux

package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// labCommands contains the commands of the lab. On this system these commands only return an error.
var labCommands = []constructor{
	needsLinux("up"), needsLinux("status"), needsLinux("enter"), needsLinux("images"), needsLinux("down"), needsLinux("reset"),
	needsLinux("doctor"), needsLinux("lab"), needsLinux("compose"),
}

// needsLinux returns the constructor of a command that accepts all arguments and returns an error.
func needsLinux(name string) constructor {
	return constructor{groupLab, func(cli.Env) *cobra.Command {
		return &cobra.Command{
			Use:                name,
			Short:              "Needs Linux",
			DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error {
				return fmt.Errorf("allinone %s needs Linux, and this is %s: run the lab with Docker Compose instead (docker-compose.yaml), or start only the cloud with allinone cloudsim", name, runtime.GOOS)
			},
		}
	}}
}
