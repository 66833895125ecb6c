package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Release is the version of a release, for example v1.2.3. A build can set it with the linker
// flag -X. In other builds it is empty.
var Release string

// Version returns the version of this binary. If the binary is not a release, Version returns the
// version that the Go toolchain recorded. The toolchain records a tag or a commit, and whether the
// build contains changes after the commit.
func Version() string {
	v := Release
	if info, ok := debug.ReadBuildInfo(); ok {
		v = cmp.Or(v, info.Main.Version)
	}
	return cmp.Or(v, "(devel)")
}

// VersionLine returns the name and the version of the program, the version of Go, and the
// platform.
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
