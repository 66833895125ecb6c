package aws

import (
	"encoding/json"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// stored is a record whose document has the type D. It describes an object of AWS that this cloud
// does not have.
type stored[D any] struct {
	cloudsim.Record   // its id is "" if there is no record yet
	Doc             D // the decoded document
}

func decodeRecord[D any](r cloudsim.Record) (s stored[D], err error) {
	s.Record = r
	if err := json.Unmarshal(r.Document, &s.Doc); err != nil {
		return s, cloudsim.Errorf(cloudsim.Internal, "decode the document of record %s: %w", r.ID, err)
	}
	return s, nil
}

// listStored returns all records of a kind, sorted by their ids.
func listStored[D any](q *query, kind string) (all []stored[D], err error) {
	records, _, err := cloudsim.All(q.Context(), q.Cloud.ListRecords, cloudsim.ListOptions{Kind: kind})
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		s, err := decodeRecord[D](r)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// The function store writes the name, the labels and the document of s. If s has no id, it creates
// a record of a kind, and returns Exists if there is another record with this name. Otherwise it
// updates the record, and returns Stale if another caller has changed the record since it was read.
func store[D any](q *query, kind string, s stored[D]) (stored[D], error) {
	doc, err := json.Marshal(s.Doc)
	if err != nil {
		return s, err
	}
	var r cloudsim.Record
	if s.ID == "" {
		r, err = q.Cloud.CreateRecord(q.Context(), cloudsim.CreateRecord{Kind: kind, Name: s.Name, Labels: s.Labels, Document: doc})
	} else {
		r, err = q.Cloud.UpdateRecord(q.Context(), s.ID, cloudsim.UpdateRecord{Name: s.Name, Labels: s.Labels, Document: doc}, s.Revision)
	}
	if err != nil {
		return s, err
	}
	return decodeRecord[D](r)
}
