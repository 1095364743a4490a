package app

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCmd struct{}

// Run prints the version, the revision it was built from and the Go version.
func (versionCmd) Run(std Stdio) error {
	_, err := fmt.Fprintf(std.Out, "brownout %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// version is what the Go toolchain stamped into the binary: the module's version, or the revision.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	v, rev, dirty := info.Main.Version, "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			rev = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if (v == "" || v == "(devel)") && rev != "" {
		return rev + dirty
	}
	if v == "" {
		return "(devel)"
	}
	return v
}
