package main

import (
	"reflect"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		args, options []string
		hasCommand    bool
		rest          []string
	}{
		{[]string{"-c", "echo a", "name", "-x"}, nil, true, []string{"echo a", "name", "-x"}},
		{[]string{"-ec", "false"}, []string{"-e"}, true, []string{"false"}},
		{[]string{"-e", "-o", "pipefail", "-lc", "true"}, []string{"-e", "-o", "pipefail"}, true, []string{"true"}},
		{[]string{"-euo", "pipefail", "file", "-c"}, []string{"-euo", "pipefail"}, false, []string{"file", "-c"}},
		{[]string{"--", "-file"}, nil, false, []string{"-file"}},
		{[]string{"-i"}, nil, false, []string{}},
	} {
		options, hasCommand, rest := parse(c.args)
		if !reflect.DeepEqual(options, c.options) || hasCommand != c.hasCommand || !reflect.DeepEqual(rest, c.rest) {
			t.Errorf("%q: got %q, %v, %q; want %q, %v, %q", c.args, options, hasCommand, rest, c.options, c.hasCommand, c.rest)
		}
	}
}
