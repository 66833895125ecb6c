package hcloud

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

func checkLabels(given map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(given)) {
		if errs := validation.IsQualifiedName(k); len(errs) > 0 {
			return cloudsim.InvalidField("labels", fmt.Sprintf("must not have the key %.80q: %s", k, errs[0]))
		}
		if errs := validation.IsValidLabelValue(given[k]); len(errs) > 0 {
			return cloudsim.InvalidField("labels", fmt.Sprintf("must not have this value for the key %.80q: %s", k, errs[0]))
		}
	}
	return nil
}

// parseSelector parses a label selector. The grammar is the grammar of Kubernetes' selectors,
// without the operators > and <. It returns the labels by which the cloud itself can select
// resources. It also returns a function that reports whether labels match the whole selector. If
// the returned labels express the whole selector, this function is nil.
func parseSelector(s string) (equal map[string]string, keep func(map[string]string) bool, err error) {
	if s == "" {
		return nil, nil, nil
	}
	sel, err := labels.Parse(s)
	if err != nil {
		return nil, nil, cloudsim.InvalidField("label_selector", fmt.Sprintf("is not valid: %.200s", err.Error()))
	}
	all, _ := sel.Requirements()
	equal = map[string]string{}
	for _, q := range all {
		switch q.Operator() {
		case selection.Equals, selection.DoubleEquals:
			value := q.ValuesUnsorted()[0]
			hidden := strings.HasPrefix(q.Key(), dialect.LabelPrefix) // the function matches does not see hidden labels
			if _, twice := equal[q.Key()]; twice || hidden || value == "" || len(q.Key()) > cloudsim.MaxLabelKey {
				keep = matches(sel)
				continue
			}
			equal[q.Key()] = value
		case selection.GreaterThan, selection.LessThan:
			return nil, nil, cloudsim.InvalidField("label_selector", "must not use the operators > and <")
		default:
			keep = matches(sel)
		}
	}
	return equal, keep, nil
}

func matches(sel labels.Selector) func(map[string]string) bool {
	return func(l map[string]string) bool { return sel.Matches(labels.Set(l)) }
}
