package lab

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// A new lab gets networks in which no program listens. A lab that starts again keeps its
// networks. If a program listens in these networks, the start fails.
func TestLabsDoNotShareAddresses(t *testing.T) {
	first, err := Networks{}.orUnused(nil)
	if err != nil || first != HollowNetworks(FirstHollowNetwork) {
		t.Fatalf("networks of the first lab: got %v, %v", first, err)
	}
	for _, used := range []map[int]string{
		{FirstHollowNetwork: "127.64.0.1:80"},
		{FirstHollowNetwork + 1: "127.65.3.7:80"},
	} {
		second, err := Networks{}.orUnused(used)
		if err != nil || second != HollowNetworks(FirstHollowNetwork+2) {
			t.Errorf("used networks %v: start of a new lab: got %v, error %v; want %v", used, second, err, HollowNetworks(FirstHollowNetwork+2))
		}
		if _, err := first.orUnused(used); err == nil || !strings.Contains(err.Error(), "a program listens on 127.6") {
			t.Errorf(`used networks %v: start of the first lab: got error %v, want "a program listens on 127.6"`, used, err)
		}
		if repeated, err := second.orUnused(used); err != nil || repeated != second {
			t.Errorf("used networks %v: start of the second lab: got %v, error %v; want %v", used, repeated, err, second)
		}
	}
	all := map[int]string{}
	for octet := FirstHollowNetwork; octet <= lastNetwork; octet++ {
		all[octet] = "x"
	}
	if got, err := (Networks{}).orUnused(all); err == nil {
		t.Errorf("without unused networks, a lab gets %v", got)
	}
}

// TestClaimNetworks proves that two labs that start concurrently get different networks. No program
// listens in the networks yet, so the second lab detects only the claim of the first lab. If a lab
// was killed and starts again, it waits until the killed process has released the networks.
func TestClaimNetworks(t *testing.T) {
	first, release, err := ClaimHollowNetworks(t.Context(), Networks{})
	if err != nil {
		t.Fatal(err)
	}
	second, releaseSecond, err := ClaimHollowNetworks(t.Context(), Networks{})
	if err != nil || second == first {
		t.Fatalf("networks of the second lab: got %v, %v; want other networks than %v", second, err, first)
	}
	defer releaseSecond()
	if _, err := first.claim(); !errors.Is(err, errClaimed) {
		t.Errorf("claim of claimed networks: got %v, want errClaimed", err)
	}
	time.AfterFunc(claimTimeout/10, release)
	got, releaseAgain, err := ClaimHollowNetworks(t.Context(), first)
	if err != nil || got != first {
		t.Fatalf("networks of the first lab after a restart: got %v, %v; want %v", got, err, first)
	}
	releaseAgain()
	if _, _, err := ClaimHollowNetworks(t.Context(), RealNetworks(FirstVPC)); err == nil || !strings.Contains(err.Error(), "--nodes real") {
		t.Errorf("networks for hollow nodes in the data dir of real nodes: got error %v, want an error that contains --nodes real", err)
	}
}

func TestUsedNetworks(t *testing.T) {
	l, err := net.Listen("tcp4", "127.203.3.7:0") // no other test uses 127.203
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	used, err := usedNetworks()
	if err != nil || used[203] != l.Addr().String() {
		t.Errorf("used network 203: got %q, error %v; want %s", used[203], err, l.Addr())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if used, err := usedNetworks(); err != nil || used[203] != "" {
		t.Errorf("used network 203 after the end of the listener: got %q, error %v; want none", used[203], err)
	}
}
