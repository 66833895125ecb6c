package cloudsim

import "testing"

func TestGlob(t *testing.T) {
	for _, tc := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "a/b.c", true},
		{"disks.*", "disks.create", true}, {"disks.*", "disks", false}, {"*.get", "disks.get", true}, {"*.get", "disks.gets", false},
		{"team-a/*", "team-a/web/x", true}, {"team-a/*", "team-b/web", false},
		{"a*b*c", "abbc", true}, {"a*b*c", "acb", false}, {"a*a", "a", false}, {"*ab*ab", "ab", false}, {"a*ab", "aab", true},
		{"a.c", "abc", false}, {"[a]", "a", false},
	} {
		if got := Glob(tc.pattern, tc.s); got != tc.want {
			t.Errorf("Glob(%q, %q): got %t, want %t", tc.pattern, tc.s, got, tc.want)
		}
	}
}

func TestPermissionIncludes(t *testing.T) {
	for _, tc := range []struct {
		have, want Permission
		ok         bool
	}{
		{"*", "@write", true}, {"@read", "@read", true}, {"@read", "@write", false}, {"@read", "disks.get", false},
		{"disks.*", "disks.get", true}, {"disks.*", "disks.*", true}, {"disks.get", "disks.*", false}, {"*.get", "disks.*", false}, {"*.*", "@write", false},
	} {
		if got := tc.have.Includes(tc.want); got != tc.ok {
			t.Errorf("%q includes %q: got %t, want %t", tc.have, tc.want, got, tc.ok)
		}
	}
}

func TestPredefinedRolesAreValid(t *testing.T) {
	for _, r := range PredefinedRoles() {
		if err := (CreateRole{Name: r.Name, Description: r.Description, Permissions: r.Permissions}).Validate(); err != nil {
			t.Errorf("%s: %v", r.Name, err)
		}
	}
}
