package aws

import (
	"crypto/rand"
	"errors"
	"slices"
	"strconv"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// labelDescription is the label with the description of a snapshot.
const labelDescription = dialect.LabelPrefix + "description"

type snapshot struct {
	ID          string     `xml:"snapshotId"`
	Volume      string     `xml:"volumeId"`
	Status      string     `xml:"status"`
	Start       string     `xml:"startTime"`
	Progress    string     `xml:"progress"`
	Owner       string     `xml:"ownerId"`
	Size        int        `xml:"volumeSize"`
	Description string     `xml:"description"`
	Encrypted   bool       `xml:"encrypted"`
	Tier        string     `xml:"storageTier"`
	Message     string     `xml:"statusMessage,omitempty"`
	Tags        items[tag] `xml:"tagSet"`
}

// snapshotStates maps the states of a snapshot to EC2's states. It has no entry for the deletion of
// a snapshot, because EC2 does not list a snapshot during its deletion.
var snapshotStates = map[cloudsim.SnapshotState]string{
	cloudsim.SnapshotCreating: "pending", cloudsim.SnapshotCopying: "pending", cloudsim.SnapshotReady: "completed", cloudsim.SnapshotFailed: "error",
}

func snapshotOf(s cloudsim.Snapshot) snapshot {
	out := snapshot{
		ID: idOf(prefixSnapshot, s.ID), Volume: idOf(prefixVolume, s.Disk), Status: snapshotStates[s.State], Start: formatTime(s.CreatedAt), Progress: "0%",
		Owner: accountOf(s.Project), Size: s.SizeGiB, Description: s.Labels[labelDescription], Tier: "standard", Message: s.Status.Error, Tags: tagsOf(s.Meta),
	}
	if s.ReadyToUse {
		out.Progress = "100%"
	}
	return out
}

var snapshots = kind[cloudsim.Snapshot, cloudsim.SnapshotID]{
	one: "snapshot", param: "SnapshotId", prefix: prefixSnapshot, code: "InvalidSnapshot", malformed: "InvalidSnapshotID.Malformed", own: "snap",
	get: (*client.Client).GetSnapshot, all: (*client.Client).ListSnapshots,
	meta: func(s cloudsim.Snapshot) cloudsim.Meta { return s.Meta },
	id:   func(s cloudsim.Snapshot) string { return string(s.ID) },
	values: map[string]func(cloudsim.Snapshot) []string{
		"description": func(s cloudsim.Snapshot) []string { return []string{s.Labels[labelDescription]} },
		"owner-id":    func(s cloudsim.Snapshot) []string { return []string{accountOf(s.Project)} },
		"progress":    func(s cloudsim.Snapshot) []string { return []string{snapshotOf(s).Progress} },
		"snapshot-id": func(s cloudsim.Snapshot) []string { return []string{idOf(prefixSnapshot, s.ID)} },
		"status":      func(s cloudsim.Snapshot) []string { return []string{snapshotStates[s.State]} },
		"volume-id":   func(s cloudsim.Snapshot) []string { return []string{idOf(prefixVolume, s.Disk)} },
		"volume-size": func(s cloudsim.Snapshot) []string { return []string{strconv.Itoa(s.SizeGiB)} },
	},
}

// snapshotIn returns a function that reports whether a snapshot is in the region of the request q
// and has a state in snapshotStates.
func snapshotIn(q *query) func(cloudsim.Snapshot) bool {
	region := q.region()
	return func(s cloudsim.Snapshot) bool { return s.Region == region && snapshotStates[s.State] != "" }
}

type createSnapshotAnswer struct {
	ec2Answer
	snapshot
}

// createSnapshot creates a snapshot. As in EC2, the request has no ClientToken, so a repeated
// request creates another snapshot.
func createSnapshot(q *query) (any, error) {
	id, description := q.requiredText("VolumeId"), q.text("Description")
	if len(description) > cloudsim.MaxLabelValue {
		q.fail(errInvalid("Description", strconv.Itoa(len(description))+" bytes", "at most "+strconv.Itoa(cloudsim.MaxLabelValue)+" bytes"))
	}
	labels, err := dialect.WithLabels(q.decodeTagsFor("snapshot"), map[string]string{labelDescription: description})
	if err != nil {
		q.fail(err)
	}
	if err := q.finish(); err != nil {
		return nil, err
	}
	d, err := findVolume(q, id)
	if err != nil {
		return nil, err
	}
	s, err := q.Cloud.CreateSnapshot(q.Context(), cloudsim.CreateSnapshot{Name: dialect.Name("snapshot/" + rand.Text()), Disk: d.ID, Labels: labels})
	return &createSnapshotAnswer{snapshot: snapshotOf(s)}, translateKind(err, map[cloudsim.Kind]string{cloudsim.Conflict: "IncorrectState", cloudsim.Exhausted: "SnapshotLimitExceeded"})
}

func deleteSnapshot(q *query) (any, error) {
	id := q.requiredText("SnapshotId")
	if err := q.finish(); err != nil {
		return nil, err
	}
	found, err := readByIDs(q, snapshots, []string{id}, snapshotIn(q))
	if err != nil {
		return nil, err
	}
	_, err = q.Cloud.DeleteSnapshot(q.Context(), found[0].ID)
	if errors.Is(err, cloudsim.NotFound) {
		err = snapshots.errNotFound(id) // another caller has deleted the snapshot
	}
	return &returnAnswer{Return: true}, translateKind(err, map[cloudsim.Kind]string{cloudsim.Conflict: "InvalidSnapshot.InUse"})
}

type describeSnapshotsAnswer struct {
	ec2Answer
	Snapshots items[snapshot] `xml:"snapshotSet"`
	Next      string          `xml:"nextToken,omitempty"`
}

// describeSnapshots lists the snapshots of the caller's project. This cloud has no public
// snapshots, and a caller cannot see the snapshots of other projects.
func describeSnapshots(q *query) (any, error) {
	owners, users := q.textList("Owner"), q.textList("RestorableBy")
	in := snapshotIn(q)
	found, next, err := listMatching(q, snapshots, func(s cloudsim.Snapshot) bool {
		own := func(all []string) bool {
			return len(all) == 0 || slices.Contains(all, "self") || slices.Contains(all, accountOf(s.Project))
		}
		return in(s) && own(owners) && own(users)
	})
	if err != nil {
		return nil, err
	}
	out := &describeSnapshotsAnswer{Next: next}
	for _, s := range found {
		out.Snapshots.Items = append(out.Snapshots.Items, snapshotOf(s))
	}
	return out, nil
}
