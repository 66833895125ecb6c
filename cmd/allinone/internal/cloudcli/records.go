package cloudcli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

var records = kind[cloudsim.Record, cloudsim.RecordID]{
	kind: cloudsim.KindRecord, noun: "record", plural: "records", command: "records", prefix: "rec-",
	sample: "web", kinded: true,
	id: func(r cloudsim.Record) string { return string(r.ID) },
	columns: []cli.Column[cloudsim.Record]{
		{Head: "ID", Cell: func(r cloudsim.Record) string { return string(r.ID) }},
		{Head: "KIND", Cell: func(r cloudsim.Record) string { return r.Kind }},
		{Head: "NAME", Cell: func(r cloudsim.Record) string { return r.Name }},
		{Head: "BYTES", Cell: func(r cloudsim.Record) string { return strconv.Itoa(len(r.Document)) }},
		{Head: "REVISION", Wide: true, Cell: func(r cloudsim.Record) string { return strconv.FormatUint(r.Revision, 10) }},
	},
	get:  (*client.Client).GetRecord,
	list: (*client.Client).ListRecords,
}

func newRecordsCommand(c *cli.Connection) *cobra.Command {
	cmd := records.groupCommand("Manage JSON documents that clients store in the cloud", "record", "rec")
	cmd.AddCommand(
		records.listCommand(c),
		records.getCommand(c),
		newCreateRecordCommand(c),
		newUpdateRecordCommand(c),
		records.deleteCommand(c, false, readFirst(records, func(cl *client.Client, ctx context.Context, id cloudsim.RecordID) error {
			return cl.DeleteRecord(ctx, id, 0)
		})),
	)
	return cmd
}

type documentFlags struct{ text, file string }

func (d *documentFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.text, "document", "", "document, as `JSON` text")
	cmd.Flags().StringVar(&d.file, "document-file", "", "`FILE` with the document in JSON; - for standard input")
	cmd.MarkFlagsMutuallyExclusive("document", "document-file")
}

// read returns the document from --document, or from the file of --document-file. If the user has
// set neither flag, it returns an empty document. From the file, it reads at most one byte more
// than the cloud's limit. If the file is too long, the result contains this additional byte, and
// the validation of the request refuses the document.
func (d *documentFlags) read(c *cli.Connection) (json.RawMessage, error) {
	flag, raw := "document", []byte(d.text)
	if d.file != "" {
		from := c.Stdin
		flag = "document-file"
		if d.file != "-" {
			f, err := os.Open(d.file)
			if err != nil {
				return nil, cloudsim.Errorf(cloudsim.Invalid, "--document-file: %w", err)
			}
			defer f.Close()
			from = f
		}
		var err error
		if raw, err = io.ReadAll(io.LimitReader(from, cloudsim.MaxRecordDocument+1)); err != nil {
			return nil, fmt.Errorf("--document-file: %w", err)
		}
	}
	if len(raw) <= cloudsim.MaxRecordDocument && len(raw) > 0 && !json.Valid(raw) {
		return nil, cloudsim.Errorf(cloudsim.Invalid, "--%s: must be one JSON value", flag)
	}
	return raw, nil
}

func newCreateRecordCommand(c *cli.Connection) *cobra.Command {
	var (
		o      cli.Output
		labels []string
		d      documentFlags
		req    cloudsim.CreateRecord
	)
	cmd := &cobra.Command{
		Use: "create NAME --kind KIND", Short: "Store a JSON document",
		Long: `Store a JSON document under a kind and a name. The cloud does not interpret the
document. The same command again returns the existing record.`,
		Example: `  allinone cloud records create web --kind security-group --document '{"ingress":[]}'
  allinone cloud records create web --kind target-group --document-file web.json --label team=shop`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) (err error) {
			req.Name = args[0]
			if req.Labels, err = cli.ParseLabels("label", labels); err != nil {
				return err
			}
			if req.Document, err = d.read(c); err != nil {
				return err
			}
			if len(req.Document) == 0 {
				return cloudsim.Errorf(cloudsim.Invalid, "set --document or --document-file")
			}
			if err := req.Validate(); err != nil {
				return err
			}
			made, err := cl.CreateRecord(ctx, req)
			if err != nil {
				return err
			}
			return records.printer(c, o).One(made)
		}),
	}
	o.Flags(cmd)
	d.flags(cmd)
	cmd.Flags().StringVar(&req.Kind, "kind", "", "`KIND` of the described object, such as security-group")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "label `KEY=VALUE`; may be repeated")
	_ = cmd.MarkFlagRequired("kind")
	return cmd
}

func newUpdateRecordCommand(c *cli.Connection) *cobra.Command {
	var (
		o              cli.Output
		labels, remove []string
		d              documentFlags
		rev            uint64
		req            cloudsim.UpdateRecord
	)
	cmd := &cobra.Command{
		Use: "update NAME", Short: "Change a record",
		Long: `Change a record. Settings without a flag stay unchanged. If another caller changes
the record at the same time, the command fails with exit code 6. With --revision, it
also fails if the record does not have the given revision.`,
		Example: `  allinone cloud records update web --document '{"ingress":["10.0.0.0/8"]}'
  allinone cloud records update rec-000001 --revision 214 --label team=shop --remove-label old`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: inOrder(completeNames(c, records)),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			r, err := records.findResource(ctx, cl, args[0])
			if err != nil {
				return err
			}
			if rev == 0 {
				rev = r.Revision
			}
			if req.Document, err = d.read(c); err != nil {
				return err
			}
			if len(req.Document) == 0 {
				req.Document = r.Document
			}
			more, err := cli.ParseLabels("label", labels)
			if err != nil {
				return err
			}
			req.Labels = map[string]string{}
			maps.Copy(req.Labels, r.Labels)
			maps.Copy(req.Labels, more)
			for _, key := range remove {
				delete(req.Labels, key)
			}
			if err := req.Validate(); err != nil {
				return err
			}
			now, err := cl.UpdateRecord(ctx, r.ID, req, rev)
			if err != nil {
				return err
			}
			return records.printer(c, o).One(now)
		}),
	}
	o.Flags(cmd)
	d.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&req.Name, "name", "", "new `NAME`")
	f.StringArrayVar(&labels, "label", nil, "label `KEY=VALUE`; may be repeated")
	f.StringArrayVar(&remove, "remove-label", nil, "`KEY` of a label to remove; may be repeated")
	f.Uint64Var(&rev, "revision", 0, "expected `REVISION` of the record (default the revision that the command reads)")
	return cmd
}
