package aws

import (
	"encoding/json"

	"github.com/cloudsim-dev/allinone/cloudsim"
)

// storedObject is a record of the cloud with a document of the type D. The dialect uses records for
// objects of AWS that this cloud does not have, e.g. target groups.
type storedObject[D any] struct {
	cloudsim.Record   // its ID is "" if the cloud has not stored the record yet
	Doc             D // the decoded document
}

func decodeRecord[D any](r cloudsim.Record) (s storedObject[D], err error) {
	s.Record = r
	if err := json.Unmarshal(r.Document, &s.Doc); err != nil {
		return s, cloudsim.Errorf(cloudsim.Internal, "decode the document of record %s: %w", r.ID, err)
	}
	return s, nil
}

// listObjects returns the objects in all records of the given kind, sorted by the ids of the
// records.
func listObjects[D any](q *query, kind string) (all []storedObject[D], err error) {
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

// storeObject writes the name, the labels and the document of s. If s has no id, storeObject
// creates a record of the given kind. If s has an id, storeObject updates the record with this
// id. The update fails with Stale if another caller has changed the record after this caller read
// it.
//
// If another record of this kind has the same name, storeObject returns Exists. There is one
// exception: If s has no id, and the other record has the same labels and document, storeObject
// returns the other record.
func storeObject[D any](q *query, kind string, s storedObject[D]) (storedObject[D], error) {
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
