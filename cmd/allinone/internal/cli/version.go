package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Release is the version of a release. The linker sets it: -X main.release=v1.2.3.
var Release string

// Version returns the release. Without a release it returns the source version that the Go
// toolchain recorded: a tag, or a commit and whether the source was changed.
func Version() string {
	v := Release
	if info, ok := debug.ReadBuildInfo(); ok {
		v = cmp.Or(v, info.Main.Version)
	}
	return cmp.Or(v, "(devel)")
}

// VersionLine returns the program, its version, the Go version and the platform.
func VersionLine() string {
	return fmt.Sprintf("allinone %s %s %s/%s", Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// NewVersionCommand returns the command "allinone version".
func NewVersionCommand(e Env) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  allinone version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(e.Stdout, VersionLine())
			return err
		},
	}
}
