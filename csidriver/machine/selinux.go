package machine

import (
	"slices"
	"strconv"
	"strings"
)

// sortCategories returns an SELinux label with its categories in the kernel's format (see
// mls_sid_to_context in the kernel source). Categories are sorted and unique. Three or more
// consecutive categories become a range. If the low level and the high level are equal, the result
// contains only one level. If label has fewer than four parts or an invalid list of categories, the
// function returns label unchanged.
func sortCategories(label string) string {
	parts := strings.SplitN(label, ":", 4) // user:role:type:low-high
	if len(parts) < 4 {
		return label
	}
	levels := strings.Split(parts[3], "-")
	for i, level := range levels {
		sensitivity, list, some := strings.Cut(level, ":")
		if !some {
			continue
		}
		all, ok := parseCategories(list)
		if !ok {
			return label
		}
		levels[i] = sensitivity + ":" + inRuns(all)
	}
	if len(levels) == 2 && levels[0] == levels[1] {
		levels = levels[:1]
	}
	return strings.Join(append(parts[:3], strings.Join(levels, "-")), ":")
}

// maxCategory limits category numbers, so that a range in a label cannot use much memory. Real
// policies have at most 1024 categories.
const maxCategory = 1 << 16

// parseCategories parses a list such as "c5,c0.c3" and returns the numbers,
// sorted and without duplicates.
func parseCategories(list string) (all []int, ok bool) {
	for item := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(item, ".")
		if !isRange {
			last = first
		}
		from, ok := parseCategory(first)
		to, ok2 := parseCategory(last)
		if !ok || !ok2 || from > to {
			return nil, false
		}
		for c := from; c <= to; c++ {
			all = append(all, c)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), true
}

func parseCategory(name string) (int, bool) {
	number, ok := strings.CutPrefix(name, "c")
	n, err := strconv.Atoi(number)
	return n, ok && err == nil && n >= 0 && n < maxCategory
}

func inRuns(all []int) string {
	var runs []string
	for i := 0; i < len(all); {
		end := i
		for end+1 < len(all) && all[end+1] == all[end]+1 {
			end++
		}
		run := "c" + strconv.Itoa(all[i])
		switch {
		case end-i > 1:
			run += ".c" + strconv.Itoa(all[end])
		case end > i:
			run += ",c" + strconv.Itoa(all[end])
		}
		runs = append(runs, run)
		i = end + 1
	}
	return strings.Join(runs, ",")
}
