package cloudsim

import "testing"

func TestSigningKeyMoves(t *testing.T) {
	want := map[SigningKeyState]map[Verb]SigningKeyState{
		"active":   {Retire: "retiring"},
		"retiring": {Settle: "retired", Delete: "retired"},
		"retired":  {},
	}
	moveTest(t, SigningKeyStates(), want, func(s SigningKeyState, v Verb) (SigningKeyState, error) {
		k := SigningKey{State: s}
		err := k.Move(v)
		return k.State, err
	})
}
