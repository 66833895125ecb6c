package follow

import (
	"log/slog"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// Teller is the part of a picture that tells a person, in Log, when the cloud goes
// away and comes back. A journal that no longer reaches back is no absence.
type Teller struct {
	Log *slog.Logger

	away bool
}

// Heard tells that the cloud is back, if it was told to be away.
func (t *Teller) Heard(bool) {
	if t.away {
		t.away = false
		t.Log.Info("the cloud answers again")
	}
}

// Lost tells once that the cloud is away, and each time that it was left behind.
func (t *Teller) Lost(err error, _ bool) {
	switch {
	case cloudsim.KindOf(err) == cloudsim.Gone:
		t.Log.Info("too far behind the cloud; listing everything anew", "err", err)
	case !t.away:
		t.away = true
		t.Log.Warn("the cloud does not answer; trying again", "err", err)
	}
}
