package cloudsim

import "testing"

// TestParseCredentialsFile proves that ParseCredentialsFile reads only the profile [default].
func TestParseCredentialsFile(t *testing.T) {
	const other = "[other]\naws_access_key_id = ak-000009\naws_secret_access_key = wrong\n"
	want := AccessKey{ID: "ak-000001", Secret: "secret="}
	for _, text := range []string{want.CredentialsFile(), want.CredentialsFile() + other, other + want.CredentialsFile(), "# keys\n [ default ] # mine\naws_access_key_id=ak-000001\naws_secret_access_key=secret="} {
		if k := ParseCredentialsFile(text); k.ID != want.ID || k.Secret != want.Secret {
			t.Errorf("ParseCredentialsFile(%q): got id %q and secret %q, want %q and %q", text, k.ID, k.Secret, want.ID, want.Secret)
		}
	}
	if k := ParseCredentialsFile(other); k.ID != "" || k.Secret != "" {
		t.Errorf("file without the profile [default]: got id %q and secret %q, want none", k.ID, k.Secret)
	}
}
