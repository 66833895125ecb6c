package informer

import (
	"log/slog"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// OutageLogger logs the beginning and the end of each outage of the cloud. A Handler can embed
// OutageLogger. An error of kind Gone is not an outage, because the cloud has answered.
type OutageLogger struct {
	Log *slog.Logger

	away bool
}

// OnSync logs the end of an outage that OnError has logged.
func (l *OutageLogger) OnSync(bool) {
	if l.away {
		l.away = false
		l.Log.Info("reading changes from the cloud works again")
	}
}

// OnError logs the beginning of an outage once. It also logs every error of kind Gone.
func (l *OutageLogger) OnError(err error, _ bool) {
	switch {
	case cloudsim.KindOf(err) == cloudsim.Gone:
		l.Log.Info("the cloud cannot continue the watch; listing all resources again", "err", err)
	case !l.away:
		l.away = true
		l.Log.Warn("cannot read the changes in the cloud; trying again", "err", err)
	}
}
