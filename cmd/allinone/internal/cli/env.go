// Package cli contains the parts that all commands of allinone share. These parts are the
// environment, the flags of a connection to the cloud, the output formats, the exit codes and the
// version.
package cli

import "io"

// Env contains the environment variables and the standard streams for a command. Tests set
// values that differ from the values of the process.
type Env struct {
	Getenv         func(string) string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}
