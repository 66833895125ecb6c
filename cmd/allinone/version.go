package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is set by the linker for a release: -X main.release=v1.2.3.
var release string

// version is the release, or what the Go toolchain knows of the source that
// this binary was built from: a tag, or the commit and whether it was changed.
func version() string {
	v := release
	if info, ok := debug.ReadBuildInfo(); ok {
		v = cmp.Or(v, info.Main.Version)
	}
	return cmp.Or(v, "(devel)")
}

func versionLine() string {
	return fmt.Sprintf("allinone %s %s %s/%s", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func newVersionCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  allinone version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(e.stdout, versionLine())
			return err
		},
	}
}
