// Command typecheck checks the types of packages, with all their dependencies, for other systems
// and architectures. A compiler does the same check, but it also generates code, which takes
// minutes.
//
//	typecheck windows/amd64,darwin/arm64 ./cmd/allinone
package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: typecheck SYSTEM/ARCHITECTURE[,...] PACKAGE...")
		os.Exit(2)
	}
	for target := range strings.SplitSeq(os.Args[1], ",") {
		goos, goarch, _ := strings.Cut(target, "/")
		loaded, err := packages.Load(&packages.Config{
			Mode: packages.NeedName | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
				packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedTypesSizes,
			Env: append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch),
		}, os.Args[2:]...)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", target, err)
			os.Exit(1)
		}
		if packages.PrintErrors(loaded) > 0 {
			fmt.Fprintf(os.Stderr, "%s does not compile: put code that needs a system or an architecture into files with build tags\n", target)
			os.Exit(1)
		}
	}
}
