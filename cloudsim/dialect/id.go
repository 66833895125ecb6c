package dialect

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// Number returns the number in an id of this cloud. For example, the number of i-00002a is 42. It
// returns 0 if the id contains no valid number.
func Number[S ~string](id S) int64 {
	_, hex, _ := strings.Cut(string(id), "-")
	n, err := strconv.ParseInt(hex, 16, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// ID returns the id that consists of a prefix and a number. It is the inverse of Number:
// for the prefix i and the number 42 it returns i-00002a. For a negative number it returns
// the id with the number 0, which no resource has.
func ID[S ~string](prefix string, n int64) S {
	return S(fmt.Sprintf("%s-%06x", prefix, max(n, 0)))
}

var nameRE = regexp.MustCompile(cloudsim.NamePattern)

// NameLabel is the label that stores the name that a client of the dialect gave to a resource. A
// resource has this label only if the name is not a valid name in cloudsim.
const NameLabel = LabelPrefix + "name"

// Name returns the name of a resource in this cloud. The parameter foreignName is the name that a
// client of the dialect gave to the resource. If this cloud allows foreignName, Name returns
// foreignName itself. Otherwise Name returns a hash of foreignName. Name always returns the same
// result for the same foreignName. Therefore a dialect can find the resource with a list call that
// filters by this name.
func Name(foreignName string) string {
	if nameRE.MatchString(foreignName) {
		return foreignName
	}
	sum := sha256.Sum256([]byte(foreignName))
	return "d-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:16]))[:26]
}

// OtherName returns the name that a resource of this cloud has for clients of the dialect.
func OtherName(m cloudsim.Meta) string {
	if s, ok := m.Labels[NameLabel]; ok {
		return s
	}
	return m.Name
}
