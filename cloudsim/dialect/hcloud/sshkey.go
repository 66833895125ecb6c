package hcloud

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// sshKeys describes the records that store SSH keys. SSH keys have no effect, because the machines
// of this cloud run no SSH daemon.
var sshKeys = recordKind[sshKey]{kind: "hcloud-ssh-key", one: "ssh_key", show: showSSHKeys}

const labelFingerprint = dialect.LabelPrefix + "fingerprint"

type sshKeyDocument struct {
	PublicKey string `json:"publicKey"` // a line of an authorized_keys file
}

func fingerprintOf(v cloudsim.Record) string { return v.Labels[labelFingerprint] }

func showSSHKeys(_ *dialect.Request, all []cloudsim.Record) ([]sshKey, error) {
	out := make([]sshKey, 0, len(all))
	for _, v := range all {
		var doc sshKeyDocument
		if err := decodeDocument(v, &doc); err != nil {
			return nil, err
		}
		out = append(out, sshKey{
			ID: dialect.Number(v.ID), Name: dialect.OtherName(v.Meta), Fingerprint: fingerprintOf(v), PublicKey: doc.PublicKey,
			Labels: dialect.Visible(v.Labels), Created: v.CreatedAt,
		})
	}
	return out, nil
}

func createSSHKey(r *dialect.Request) (int, any, error) {
	have, _, err := cloudsim.All(r.Context(), r.Cloud.ListRecords, cloudsim.ListOptions{Kind: sshKeys.kind})
	if err != nil {
		return 0, nil, err
	}
	var c struct {
		Name      string             `json:"name"`
		PublicKey string             `json:"public_key"`
		Labels    *map[string]string `json:"labels"`
	}
	if err := r.Decode(&c); err != nil {
		return 0, nil, err
	}
	line := strings.TrimSpace(c.PublicKey)
	key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil || len(options) > 0 || strings.ContainsAny(line, "\r\n") {
		return 0, nil, cloudsim.InvalidField("public_key", "must be one public key in OpenSSH's format, such as the file id_ed25519.pub")
	}
	fingerprint := ssh.FingerprintLegacyMD5(key)
	for _, v := range have {
		if fingerprintOf(v) == fingerprint {
			return 0, nil, cloudsim.Errorf(cloudsim.Exists, "the SSH key %q (%d) has the same public key", dialect.OtherName(v.Meta), dialect.Number(v.ID))
		}
	}
	v, err := sshKeys.create(r, c.Name, c.Labels, map[string]string{labelFingerprint: fingerprint}, sshKeyDocument{line})
	if err != nil {
		return 0, nil, err
	}
	body, err := sshKeys.body(r, v)
	return http.StatusCreated, body, err
}

// findSSHKeys returns an Invalid error if one of the SSH keys does not exist.
func findSSHKeys(r *dialect.Request, keys []idOrName) error {
	if len(keys) == 0 {
		return nil
	}
	have, _, err := cloudsim.All(r.Context(), r.Cloud.ListRecords, cloudsim.ListOptions{Kind: sshKeys.kind})
	if err != nil {
		return err
	}
	for i, k := range keys {
		if !slices.ContainsFunc(have, func(v cloudsim.Record) bool { return k.refersTo(dialect.Number(v.ID), dialect.OtherName(v.Meta)) }) {
			return errUnknown(fmt.Sprintf("ssh_keys[%d]", i), k)
		}
	}
	return nil
}
