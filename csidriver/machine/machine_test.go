package machine

import "testing"

// TestMountedWith proves that MountedWith finds differences between the
// requested options and the kernel's options. MountedWith compares SELinux
// labels by meaning and not by spelling.
func TestMountedWith(t *testing.T) {
	plain := Mount{Options: []string{"rw", "relatime"}, Super: splitOptions("rw,seclabel,stripe=4")}
	labeled := Mount{Options: []string{"rw", "noatime"}, Super: splitOptions(`rw,context="u:r:t:s0:c5,c10",stripe=4`)}
	short := Mount{Options: []string{"rw"}, Super: splitOptions("rw,context=u:r:t:s0")}
	for _, tc := range []struct {
		name    string
		m       Mount
		options []string
		want    bool
	}{
		{"no options", plain, nil, true},
		{"own options", plain, []string{"rw", "stripe=4"}, true},
		{"other value of an own option", plain, []string{"stripe=8"}, false},
		{"options that the kernel does not show", plain, []string{"commit=5", "barrier", "acl", "strictatime", "allocsize=1m"}, true},
		{"missing option that the kernel shows", plain, []string{"discard"}, false},
		{"missing flag", plain, []string{"noatime"}, false},
		{"missing label", plain, []string{"context=u:r:t:s0"}, false},
		{"same label in quotes", labeled, []string{"noatime", `context="u:r:t:s0:c5,c10"`, "stripe=4"}, true},
		{"same label without quotes", labeled, []string{"noatime", "context=u:r:t:s0:c5,c10"}, true},
		{"part of the label", labeled, []string{"noatime", "context=u:r:t:s0:c5"}, false},
		{"no label, mount with a label", labeled, []string{"noatime"}, false},
		{"same label in another order", labeled, []string{"noatime", `context="u:r:t:s0:c10,c5"`}, true},
		{"same label with repeated categories", labeled, []string{"noatime", "context=u:r:t:s0:c10,c5,c10-s0:c5,c10"}, true},
		{"other label in another order", labeled, []string{"noatime", `context="u:r:t:s0:c10,c6"`}, false},
		{"unnecessary quotes", short, []string{`context="u:r:t:s0"`}, true},
	} {
		if got := tc.m.MountedWith(tc.options); got != tc.want {
			t.Errorf("%s: got %t, want %t", tc.name, got, tc.want)
		}
	}
}

// TestSortCategories proves that sortCategories sorts the categories of an SELinux label as the
// kernel does.
func TestSortCategories(t *testing.T) {
	for label, want := range map[string]string{
		"u:r:t:s0:c26,c5":             "u:r:t:s0:c5,c26",
		"u:r:t:s0:c1,c0":              "u:r:t:s0:c0,c1",
		"u:r:t:s0:c2,c1,c0":           "u:r:t:s0:c0.c2",
		"u:r:t:s0:c0.c1":              "u:r:t:s0:c0,c1",
		"u:r:t:s0:c9,c0.c3,c2.c4,c9":  "u:r:t:s0:c0.c4,c9",
		"u:r:t:s0-s0:c3,c1":           "u:r:t:s0-s0:c1,c3",
		"u:r:t:s0:c3,c1-s15:c0.c1023": "u:r:t:s0:c1,c3-s15:c0.c1023",
		"u:r:t:s0-s0":                 "u:r:t:s0",
		"u:r:t:s0":                    "u:r:t:s0",
		"u:r:t":                       "u:r:t",
		"u:r:t:s0:c3.c1":              "u:r:t:s0:c3.c1",
		"u:r:t:s0:c3,":                "u:r:t:s0:c3,",
		"u:r:t:s0:Secret,c1":          "u:r:t:s0:Secret,c1",
		"u:r:t:s0:c0.c99999999999,c1": "u:r:t:s0:c0.c99999999999,c1",
		"u:r:t:s0:c-1":                "u:r:t:s0:c-1",
		"nonsense":                    "nonsense",
		"":                            "",
	} {
		if got := sortCategories(label); got != want {
			t.Errorf("sortCategories(%q): got %q, want %q", label, got, want)
		}
	}
}
