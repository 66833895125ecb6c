package follow

import (
	"log/slog"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// Teller is the part of a Picture that logs when the cloud becomes unreachable
// and reachable again. A journal that no longer contains the needed revision does
// not count as unreachable.
type Teller struct {
	Log *slog.Logger

	away bool
}

// Heard logs that the cloud answers again, if Lost has logged an outage.
func (t *Teller) Heard(bool) {
	if t.away {
		t.away = false
		t.Log.Info("the cloud answers again")
	}
}

// Lost logs the beginning of an outage once. It logs every time that the watch
// was too far behind.
func (t *Teller) Lost(err error, _ bool) {
	switch {
	case cloudsim.KindOf(err) == cloudsim.Gone:
		t.Log.Info("too far behind the cloud; listing everything anew", "err", err)
	case !t.away:
		t.away = true
		t.Log.Warn("the cloud does not answer; trying again", "err", err)
	}
}
