package cloudsim_test

import (
	"testing"
	"time"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// TestSignatureOfAWS compares Sign with the example in AWS's documentation
// "Create a signed AWS API request".
func TestSignatureOfAWS(t *testing.T) {
	s := cloudsim.Signature{
		AccessKey: "AKIDEXAMPLE", Time: time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC), Region: "us-east-1", Service: "iam",
		Hash: "f536975d06c0309214f805bb90ccff089219ecd68b2577efef23edd43b7e1a59",
	}
	const want = "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
	if got := s.Sign("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"); got != want {
		t.Errorf("signature: got %s, want %s", got, want)
	}
}

// FuzzParseSignature parses arbitrary texts. If ParseSignature accepts a text, the method
// Token of the result must return the same text.
func FuzzParseSignature(f *testing.F) {
	s := cloudsim.Signature{AccessKey: "ak-000001", Time: time.Unix(1, 0), Region: "sim-1", Service: "ec2", Hash: "00"}
	s.Signature = s.Sign("secret")
	s.Hash = s.Signature
	f.Add(s.Token())
	f.Add("sigv4.a.20260231T000000Z.b.c." + s.Hash + "." + s.Hash)
	f.Add("sigv4......")
	s.SessionToken = "cst_A"
	f.Add(s.Token())
	f.Fuzz(func(t *testing.T, text string) {
		s, ok := cloudsim.ParseSignature(text)
		if ok && s.Token() != text {
			t.Errorf("token of the signature: got %q, want %q", s.Token(), text)
		}
		if ok && !cloudsim.IsSignature(text) {
			t.Errorf("%q: IsSignature is false", text)
		}
	})
}
