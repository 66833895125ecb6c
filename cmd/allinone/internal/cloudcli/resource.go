package cloudcli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/client"
	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// A kind describes one kind of resource. It contains the functions and texts with which
// commands find, print and name resources of this kind.
type kind[T cloudsim.Resource, ID ~string] struct {
	kind    cloudsim.ResourceKind
	noun    string // name of the kind in messages, for example "load balancer"
	plural  string
	command string // name of the parent command of this kind's commands
	prefix  string // prefix of ids, for example "i-"; "" if the id of a resource is its name
	sample  string // name of a resource in examples
	zoned   bool   // the list command can filter by zone
	sourced bool   // the list command can filter by source

	networked bool // the list command can filter by network
	attached  bool // the list command can filter by the instance of an attachment
	worked    bool // the list command can filter by target and state of an operation
	kinded    bool // the list command can filter by the kind of a record

	id    func(T) string
	state func(T) string // nil if the kind has no state
	// columns are the columns that only this kind has. In a table they come before the columns of
	// cli.MetaColumns, which all kinds have.
	columns []cli.Column[T]

	get  func(*client.Client, context.Context, ID) (T, error)
	list func(*client.Client, context.Context, cloudsim.ListOptions) (cloudsim.List[T], error)
}

func (k kind[T, ID]) printer(c *cli.Connection, o cli.Output) cli.Printer[T] {
	return cli.Printer[T]{Output: o, Writer: c.Stdout, ID: k.id, Columns: append(slices.Clone(k.columns), cli.MetaColumns[T]()...)}
}

func (k kind[T, ID]) all(ctx context.Context, cl *client.Client, o cloudsim.ListOptions) ([]T, uint64, error) {
	return cloudsim.All(ctx, func(ctx context.Context, o cloudsim.ListOptions) (cloudsim.List[T], error) {
		return k.list(cl, ctx, o)
	}, o)
}

// mayBeID reports whether s looks like an id of this kind.
func (k kind[T, ID]) mayBeID(s string) bool {
	if k.prefix == "" {
		return strings.Trim(s, ".") != "" // a name of only dots would change the path of the request
	}
	rest, ok := strings.CutPrefix(s, k.prefix)
	return ok && rest != "" && strings.Trim(rest, "0123456789abcdef") == ""
}

// maxHints is the largest number of existing names or ids that an error lists.
const maxHints = 10

// findResource returns the resource with the id nameOrID. If no resource has this id, it returns
// the resource with the name nameOrID.
func (k kind[T, ID]) findResource(ctx context.Context, cl *client.Client, nameOrID string) (T, error) {
	var none T
	if nameOrID == "" {
		return none, cloudsim.Errorf(cloudsim.Invalid, "the name of the %s is empty", k.noun)
	}
	if k.mayBeID(nameOrID) {
		t, err := k.get(cl, ctx, ID(nameOrID))
		if !errors.Is(err, cloudsim.NotFound) {
			return t, err
		}
	}
	named, err := k.list(cl, ctx, cloudsim.ListOptions{Name: nameOrID})
	switch {
	case err != nil:
		return none, err
	case len(named.Items) == 1:
		return named.Items[0], nil
	case len(named.Items) > 1:
		return none, cloudsim.Errorf(cloudsim.Invalid, "%d %s are named %q: %s; use an id or --project",
			len(named.Items), k.plural, nameOrID, k.hints(named.Items, k.id))
	}
	resources, err := k.list(cl, ctx, cloudsim.ListOptions{Limit: maxHints + 1})
	switch {
	case err != nil:
		return none, err
	case len(resources.Items) == 0:
		return none, cloudsim.Errorf(cloudsim.NotFound, "no %s is named %q; there are no %s", k.noun, nameOrID, k.plural)
	}
	return none, cloudsim.Errorf(cloudsim.NotFound, "no %s is named %q; existing %s: %s", k.noun, nameOrID, k.plural,
		k.hints(resources.Items, func(t T) string { return t.Head().Name }))
}

func (k kind[T, ID]) hints(ts []T, word func(T) string) string {
	var words []string
	for _, t := range ts {
		words = append(words, word(t))
	}
	if len(words) > maxHints {
		words = append(words[:maxHints], "…")
	}
	return strings.Join(words, ", ")
}

// resolveAll returns the resources with the given names or ids. The result contains each resource
// only once. The error contains an error for each resource that does not exist.
func (k kind[T, ID]) resolveAll(ctx context.Context, cl *client.Client, namesOrIDs []string) ([]T, error) {
	var found []T
	var errs []error
	for _, n := range namesOrIDs {
		t, err := k.findResource(ctx, cl, n)
		switch {
		case err != nil:
			errs = append(errs, err)
		case !slices.ContainsFunc(found, func(have T) bool { return k.id(have) == k.id(t) }):
			found = append(found, t)
		}
	}
	return found, cloudsim.OneOrMany(errs)
}

// groupCommand returns the parent command of this kind's commands.
func (k kind[T, ID]) groupCommand(short string, aliases ...string) *cobra.Command {
	return &cobra.Command{
		Use: k.command, Aliases: aliases, Short: short,
		Example: fmt.Sprintf("  allinone cloud %[1]s list\n  allinone cloud %[1]s list --watch -o wide", k.command),
	}
}

func (k kind[T, ID]) listCommand(c *cli.Connection) *cobra.Command {
	var (
		o        cli.Output
		labels   []string
		where    cloudsim.ListOptions
		watching bool
		source   string
		network  string
		attached []string
	)
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List " + k.plural, Args: cobra.NoArgs,
		Long: fmt.Sprintf("List %s, sorted by id.\n\nWith --watch, the command prints the list and then each change until Ctrl-C. Together,\n"+
			"the list and the changes contain each change exactly once. In JSON each line is one\nevent.", k.plural),
		Example: fmt.Sprintf(`  allinone cloud %[1]s list
  allinone cloud %[1]s list -l team=shop -o json
  allinone cloud %[1]s list --watch`, k.command),
	}
	cmd.RunE = c.Run(func(ctx context.Context, cl *client.Client, _ []string) (err error) {
		if where.Labels, err = cli.ParseLabels("selector", labels); err != nil {
			return err
		}
		if where.Source, err = sourceID(ctx, cl, source); err != nil {
			return err
		}
		if network != "" {
			n, err := networks.findResource(ctx, cl, network)
			if err != nil {
				return err
			}
			where.Network = n.ID
		}
		where.Instances = nil
		for _, nameOrID := range attached {
			id, err := instanceID(ctx, cl, nameOrID)
			if err != nil {
				return err
			}
			where.Instances = append(where.Instances, id)
		}
		p := k.printer(c, o)
		if watching {
			return watchList(ctx, c, cl, k, p, where)
		}
		items, _, err := k.all(ctx, cl, where)
		if err != nil {
			return err
		}
		if len(items) == 0 && (o.Format == cli.FormatTable || o.Format == cli.FormatWide) {
			fmt.Fprintf(c.Stderr, "no %s\n", k.plural)
			return nil
		}
		return p.List(items)
	})
	o.Flags(cmd)
	f := cmd.Flags()
	f.BoolVarP(&watching, "watch", "w", false, "after the list, print changes until Ctrl-C")
	f.StringSliceVarP(&labels, "selector", "l", nil, "only resources with the label `KEY=VALUE`; may be repeated")
	if k.zoned {
		f.StringVar(&where.Zone, "zone", "", "only resources in this zone")
		_ = cmd.RegisterFlagCompletionFunc("zone", completeNames(c, zones))
	}
	if k.sourced {
		f.StringVar(&source, "source", "", "only resources that were created from this `DISK`, or from the snapshot with this id")
		_ = cmd.RegisterFlagCompletionFunc("source", completeNames(c, disks))
	}
	if k.attached {
		f.StringArrayVar(&attached, "instance", nil, "only disks that are attached to this `INSTANCE`; may be repeated")
		_ = cmd.RegisterFlagCompletionFunc("instance", completeNames(c, instances))
	}
	if k.worked {
		f.StringVar(&where.Target, "target", "", "only operations on the resource with this `ID`")
		f.StringVar(&where.State, "state", "", "only operations in this state: pending, running, done, failed or cancelled")
		_ = cmd.RegisterFlagCompletionFunc("state", cli.Fixed(cloudsim.OperationStates()...))
	}
	if k.kinded {
		f.StringVar(&where.Kind, "kind", "", "only records of this `KIND`")
	}
	if k.networked {
		f.StringVar(&network, "network", "", "only resources in this `NETWORK`")
		_ = cmd.RegisterFlagCompletionFunc("network", completeNames(c, networks))
	}
	return cmd
}

func (k kind[T, ID]) getCommand(c *cli.Connection) *cobra.Command {
	var o cli.Output
	cmd := &cobra.Command{
		Use: "get NAME...", Short: "Show one or more " + k.plural,
		Example: fmt.Sprintf("  allinone cloud %[1]s get %[2]s\n  allinone cloud %[1]s get %[2]s -o yaml", k.command, k.sample),
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: completeNames(c, k),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			found, err := k.resolveAll(ctx, cl, args)
			return errors.Join(printResult(k.printer(c, o), len(args) == 1, found), err)
		}),
	}
	o.Flags(cmd)
	return cmd
}

// labelCommand returns the command that changes the labels of a resource. updateFn replaces
// all labels of a resource, so the command also passes the unchanged labels.
func (k kind[T, ID]) labelCommand(c *cli.Connection, updateFn func(context.Context, *client.Client, T, map[string]string) (T, error)) *cobra.Command {
	var o cli.Output
	cmd := &cobra.Command{
		Use: fmt.Sprintf("label %s KEY=VALUE... KEY-...", strings.ToUpper(k.noun)), Short: "Set and remove labels of one " + k.noun,
		Long: fmt.Sprintf(`Set labels of one %s with KEY=VALUE, and remove them with KEY-, as 'kubectl
label' does for a Node.`, k.noun),
		Example: fmt.Sprintf("  allinone cloud %s label %s team=red tier-", k.command, k.sample),
		Args:    cobra.MinimumNArgs(2), ValidArgsFunction: inOrder(completeNames(c, k)),
		RunE: c.Run(func(ctx context.Context, cl *client.Client, args []string) error {
			v, err := k.findResource(ctx, cl, args[0])
			if err != nil {
				return err
			}
			labels := maps.Clone(v.Head().Labels)
			if labels == nil {
				labels = map[string]string{}
			}
			var set []string
			for _, a := range args[1:] {
				if key, remove := strings.CutSuffix(a, "-"); remove && !strings.Contains(a, "=") {
					delete(labels, key)
				} else {
					set = append(set, a)
				}
			}
			more, err := cli.ParseLabels("label", set)
			if err != nil {
				return err
			}
			maps.Copy(labels, more)
			now, err := updateFn(ctx, cl, v, labels)
			if err != nil {
				return err
			}
			return printResult(k.printer(c, o), true, []T{now})
		}),
	}
	o.Flags(cmd)
	return cmd
}

// printResult prints the resources that a command found or changed. If resources is empty, it
// prints nothing.
func printResult[T any](p cli.Printer[T], single bool, resources []T) error {
	switch {
	case len(resources) == 0:
		return nil
	case single:
		return p.One(resources[0])
	}
	return p.List(resources)
}

// completeNames returns a shell completion for the names of resources of the kind k. It omits
// names that the command line already contains.
func completeNames[T cloudsim.Resource, ID ~string](c *cli.Connection, k kind[T, ID]) cobra.CompletionFunc {
	return c.Complete(func(ctx context.Context, cl *client.Client) (all []cli.Candidate, err error) {
		resources, err := k.list(cl, ctx, cloudsim.ListOptions{})
		for _, t := range resources.Items {
			about := k.id(t)
			if k.state != nil {
				about += " " + k.state(t)
			}
			all = append(all, cli.Candidate{Name: t.Head().Name, About: about})
		}
		return all, err
	})
}

// inOrder returns a shell completion that completes the first argument with the first completion in
// the list, the second argument with the second completion, and so on. It completes no other
// arguments.
func inOrder(completions ...cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, given []string, part string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(given) >= len(completions) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completions[len(given)](cmd, nil, part)
	}
}
