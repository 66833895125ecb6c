package course

import (
	"encoding/json"
	"fmt"
)

// Progress records the steps and labs that a user has finished. `allinone lab`
// saves the Progress in a file. At the beginning of the course, use
// ReadProgress(nil), because the maps of a zero Progress are nil.
type Progress struct {
	Now   string          `json:"now,omitempty"` // the lab that the user started last and did not reset
	Steps map[string]int  `json:"steps"`         // number of finished steps by lab
	Done  map[string]bool `json:"done"`          // labs that the user finished at least once
}

// ReadProgress decodes a saved Progress. If raw is empty, it returns an empty Progress.
func ReadProgress(raw []byte) (p Progress, err error) {
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &p); err != nil {
			return p, fmt.Errorf("the progress file of the course is damaged: %w", err)
		}
	}
	if p.Steps == nil {
		p.Steps = map[string]int{}
	}
	if p.Done == nil {
		p.Done = map[string]bool{}
	}
	return p, nil
}

// Begin makes l the current lab, at its first step.
func (p *Progress) Begin(l Lab) {
	p.Now = l.ID
	p.Steps[l.ID] = 0
}

// Advance marks the current step of l as done.
func (p *Progress) Advance(l Lab) {
	p.Steps[l.ID] = min(p.Steps[l.ID]+1, len(l.Steps))
	if p.Over(l) {
		p.Done[l.ID] = true
	}
}

// Over reports whether the user has finished every step of l.
func (p Progress) Over(l Lab) bool { return p.Steps[l.ID] >= len(l.Steps) }

// Forget removes the progress of l after a reset. A finished lab stays in Done.
func (p *Progress) Forget(l Lab) {
	delete(p.Steps, l.ID)
	if p.Now == l.ID {
		p.Now = ""
	}
}

// State describes the progress of l in words.
func (p Progress) State(l Lab) string {
	switch {
	case p.Now == l.ID && !p.Over(l):
		return fmt.Sprintf("step %d of %d", p.Steps[l.ID]+1, len(l.Steps))
	case p.Done[l.ID]:
		return "done"
	}
	return ""
}
