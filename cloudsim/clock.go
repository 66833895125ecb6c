package cloudsim

import "time"

// ClockMode describes how the cloud's time follows the machine's time.
type ClockMode string

const (
	ClockReal   ClockMode = "real"   // the machine's time
	ClockOffset ClockMode = "offset" // the machine's time plus an offset
	ClockFaster ClockMode = "faster"
	ClockSlower ClockMode = "slower"
	ClockFrozen ClockMode = "frozen" // stands still until a call advances it
)

// Clock is the state of the cloud's clock. The cloud uses this clock for operations that take time,
// for retention periods, for the expiry of tokens, and for the time windows of faults. Most times
// in the answers of the API are times of this clock. An exception is the field SavedAt of a State,
// which is a time of the machine's clock.
type Clock struct {
	Mode         ClockMode  `json:"mode" enum:"real,offset,faster,slower,frozen"`
	Now          time.Time  `json:"now" doc:"RFC 3339; the cloud's time at the read"`
	Rate         float64    `json:"rate" doc:"Seconds of the cloud's clock per second of the computer's clock; 0 for a stopped clock"`
	AheadSeconds float64    `json:"aheadSeconds" doc:"Seconds by which the cloud's clock is ahead of the computer's clock; negative if it is behind"`
	NextDue      *time.Time `json:"nextDue,omitempty" doc:"RFC 3339; time at which the cloud's next scheduled work is due. Absent if no work is scheduled"`
}

// MaxClockRate is the highest rate of a clock. MaxClockAdvance is the longest time by which a call
// can advance a clock.
const (
	MaxClockRate    = 10_000
	MaxClockAdvance = tenYears * time.Second // for one call
)

// FirstClockTime and LastClockTime are the limits of the times to which a caller can set or advance
// a clock. A running clock can show later times.
var (
	FirstClockTime = time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC)
	LastClockTime  = time.Date(2190, 1, 1, 0, 0, 0, 0, time.UTC)
)

// SetClock sets the time or the speed of the cloud's clock, or both. An absent field changes
// nothing. A caller may set the time back. Running work then takes longer, because it keeps its
// planned end. A duration that a client measures meanwhile can be negative.
type SetClock struct {
	Real         bool       `json:"real,omitempty" doc:"Follow the computer's clock again. Excludes all other fields"`
	Time         *time.Time `json:"time,omitempty" doc:"RFC 3339; the new time of the cloud. Excludes aheadSeconds"`
	AheadSeconds *float64   `json:"aheadSeconds,omitempty" doc:"Seconds by which the cloud's clock is ahead of the computer's clock; negative if it is behind"`
	Rate         *float64   `json:"rate,omitempty" minimum:"0" maximum:"10000" doc:"Seconds of the cloud's clock per second of the computer's clock; 0 for a stopped clock"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r SetClock) Validate() error {
	var c checks
	if r.Real && (r.Time != nil || r.AheadSeconds != nil || r.Rate != nil) {
		c.addf("real", "cannot be used with time, aheadSeconds or rate")
	}
	if !r.Real && r.Time == nil && r.AheadSeconds == nil && r.Rate == nil {
		c.addf("time", "is required, unless aheadSeconds, rate or real is set")
	}
	if r.Time != nil && r.AheadSeconds != nil {
		c.addf("aheadSeconds", "cannot be used with time")
	}
	if r.Time != nil && (r.Time.Before(FirstClockTime) || r.Time.After(LastClockTime)) {
		c.addf("time", "must be between %s and %s", FirstClockTime.Format(time.DateOnly), LastClockTime.Format(time.DateOnly))
	}
	const century = 100 * 365 * 24 * 3600
	if s := r.AheadSeconds; s != nil && !(*s >= -century/2 && *s <= century) {
		c.addf("aheadSeconds", "must be between %d (50 years behind) and %d (100 years ahead), got %v", int64(-century/2), int64(century), *s)
	}
	if x := r.Rate; x != nil && !(*x >= 0 && *x <= MaxClockRate) {
		c.addf("rate", "must be between 0 and %d, got %v", MaxClockRate, *x)
	}
	return c.err()
}

// AdvanceClock moves the clock forward. The call works in every clock mode.
type AdvanceClock struct {
	Seconds float64 `json:"seconds" minimum:"0" maximum:"315360000" doc:"Seconds by which the clock moves forward; 0 only completes the work that is due now" example:"90"`
}

// Validate checks only the request itself, and not the state of the cloud. If fields are
// invalid, it returns an error of kind Invalid that names these fields.
func (r AdvanceClock) Validate() error {
	var c checks
	if limit := MaxClockAdvance.Seconds(); !(r.Seconds >= 0 && r.Seconds <= limit) {
		c.addf("seconds", "must be between 0 and %.0f (ten years), got %v", limit, r.Seconds)
	}
	return c.err()
}
