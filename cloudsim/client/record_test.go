package client_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
)

func everyRecordVerb(t *testing.T, c *client.Client) {
	t.Helper()
	ctx := t.Context()
	r := must(c.CreateRecord(ctx, cloudsim.CreateRecord{Kind: "group", Name: "Web <1>", Document: json.RawMessage(`{"a":["<b>",1e3]}`)}))(t)
	if got := must(c.GetRecord(ctx, r.ID))(t); got.Name != "Web <1>" || got.Revision != r.Revision {
		t.Errorf("record: got %+v, want the record that was created", got)
	}
	if l := must(c.ListRecords(ctx, cloudsim.ListOptions{Kind: "group", Name: "Web <1>"}))(t); len(l.Items) != 1 {
		t.Errorf("records: got %+v, want 1", l.Items)
	}
	changed := must(c.UpdateRecord(ctx, r.ID, cloudsim.UpdateRecord{Document: json.RawMessage(`null`)}, r.Revision))(t)
	if string(changed.Document) != "null" {
		t.Errorf("document: got %s, want null", changed.Document)
	}
	if _, err := c.UpdateRecord(ctx, r.ID, cloudsim.UpdateRecord{Document: json.RawMessage(`1`)}, r.Revision); !errors.Is(err, cloudsim.Stale) {
		t.Errorf("update with an old revision: got error %v, want Stale", err)
	}
	if err := c.DeleteRecord(ctx, r.ID, r.Revision); !errors.Is(err, cloudsim.Stale) {
		t.Errorf("deletion with an old revision: got error %v, want Stale", err)
	}
	if err := c.DeleteRecord(ctx, r.ID, changed.Revision); err != nil {
		t.Error(err)
	}
}
