package hcloud

import (
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// labelProtection is a label of each resource that is protected against deletion. The dialect
// refuses to delete a resource with this label. But a client that does not use this dialect can
// delete the resource.
const labelProtection = dialect.LabelPrefix + "protection"

func protected(m cloudsim.Meta) bool { return m.Labels[labelProtection] != "" }

func checkDeletable(m cloudsim.Meta) error {
	if !protected(m) {
		return nil
	}
	return dialect.CodedError{
		Failure: dialect.Failure{Status: http.StatusForbidden, Code: "protected"},
		Msg:     "the resource is protected against deletion: change its protection first",
	}
}

func protect(labels map[string]string, on bool) {
	if labels[labelProtection] = "delete"; !on {
		delete(labels, labelProtection)
	}
}

type changeProtection struct {
	Delete *bool `json:"delete"`
}

func (c changeProtection) protectedLabels(m cloudsim.Meta) map[string]string {
	labels := dialect.CloneLabels(m.Labels)
	if c.Delete != nil {
		protect(labels, *c.Delete)
	}
	return labels
}

type changeServerProtection struct {
	changeProtection
	Rebuild *bool `json:"rebuild"`
}

// protectServer changes the protection of a server. As in Hetzner's API, the fields delete and
// rebuild must have the same value. For an absent field, protectServer uses the current protection
// of the server.
func protectServer(_ *dialect.Request, i cloudsim.Instance, labels map[string]string, in changeServerProtection) error {
	wanted := func(b *bool) bool { return b == nil && protected(i.Meta) || b != nil && *b }
	if wanted(in.Delete) != wanted(in.Rebuild) {
		return cloudsim.InvalidField("rebuild", "must have the same value as delete")
	}
	protect(labels, wanted(in.Delete))
	return nil
}

func protectVolume(r *dialect.Request, d cloudsim.Disk, in changeProtection) (cloudsim.Disk, error) {
	return r.Cloud.UpdateDisk(r.Context(), d.ID, cloudsim.UpdateDisk{Labels: in.protectedLabels(d.Meta)}, d.Revision)
}

func protectNetwork(r *dialect.Request, n cloudsim.Network, in changeProtection) (m cloudsim.Meta, busy bool, err error) {
	n, err = r.Cloud.UpdateNetwork(r.Context(), n.ID, cloudsim.UpdateNetwork{Labels: in.protectedLabels(n.Meta), NetworkSpec: n.NetworkSpec}, n.Revision)
	return n.Meta, n.State == cloudsim.NetworkCreating, err
}

func protectLoadBalancer(_ *dialect.Request, l *cloudsim.LoadBalancer, in changeProtection) error {
	l.Labels = in.protectedLabels(l.Meta)
	return nil
}
