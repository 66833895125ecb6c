package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is the version of a release. The linker sets it: -X main.release=v1.2.3.
var release string

// version returns the release. Without a release it returns the source version that the Go
// toolchain recorded: a tag, or a commit and whether the source was changed.
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
