package resident

import "runtime/debug"

// roomy is how much of what is alive may become garbage before it is collected,
// in percent. A call of the cloud leaves some 80 KiB of garbage and next to
// nothing alive, so Go's own 100 collects a heap of 10 MiB fifty times a second,
// which is an eighth of the processor; this is a thirtieth.
const roomy = 400

// Roomy lets the heap of a server be larger while it is busy; Trim gives that
// back when it is calm. Its argument is the environment's GOGC: who sets that
// has chosen.
func Roomy(gogc string) {
	if gogc == "" {
		debug.SetGCPercent(roomy)
	}
}
