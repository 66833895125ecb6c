package engine

import (
	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/store"
)

// TranscriptHead returns the first line of a new transcript. The line contains the present time and
// revision of the cloud.
func (e *Engine) TranscriptHead() (h cloudsim.TranscriptHead, err error) {
	h = cloudsim.TranscriptHead{
		Format: cloudsim.TranscriptFormat, Version: cloudsim.TranscriptVersion,
		Seed: e.cfg.Seed, Profile: e.cfg.Profile.Name,
	}
	err = e.store.View(func(tx *store.Tx) error {
		k := clockOf(tx)
		h.Clock, h.Time, h.Revision = k.Mode, k.Now, tx.Revision()
		return nil
	})
	return h, err
}
