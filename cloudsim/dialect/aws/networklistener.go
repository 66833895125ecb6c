package aws

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// In AWS, listeners have ARNs and tags, but in this cloud they do not. So the dialect stores each
// listener of a network load balancer in a record. A listener with the protocol TCP_UDP becomes two
// listeners of this cloud, one for TCP and one for UDP.

const listenerRecords = "aws-listener" // kind of the records

type networkListener = storedObject[listenerDocument]

// listenerDocument is the document of a record that stores a listener.
type listenerDocument struct {
	LoadBalancer cloudsim.LoadBalancerID `json:"loadBalancer"`
	TargetGroup  cloudsim.RecordID       `json:"targetGroup"`
	Protocol     string                  `json:"protocol"` // a key of transports
	Port         int                     `json:"port"`
}

// recordName returns the name of a listener's record. If two listeners of one load balancer have
// the same protocol and port, their records have the same name. So the cloud refuses the second
// record.
func (d listenerDocument) recordName() string {
	return fmt.Sprintf("%s/%s/%d", d.LoadBalancer, d.Protocol, d.Port)
}

// overlaps reports whether two listeners belong to the same load balancer, have the same port, and
// share a protocol. For example, TCP_UDP and TCP share the protocol TCP.
func (d listenerDocument) overlaps(other listenerDocument) bool {
	return d.LoadBalancer == other.LoadBalancer && d.Port == other.Port &&
		slices.ContainsFunc(transports[d.Protocol], func(p cloudsim.Protocol) bool { return slices.Contains(transports[other.Protocol], p) })
}

type networkListenerDescription struct {
	ARN          string                 `xml:"ListenerArn"`
	LoadBalancer string                 `xml:"LoadBalancerArn"`
	Port         int                    `xml:"Port"`
	Protocol     string                 `xml:"Protocol"`
	Actions      members[forwardAction] `xml:"DefaultActions"`
}

type forwardAction struct {
	Type        string `xml:"Type"`
	TargetGroup string `xml:"TargetGroupArn"`
	Order       int    `xml:"Order"`
}

// networkListenerOf returns a listener in AWS's format. If the cloud no longer has the record of
// the listener's target group, the result has no action.
func networkListenerOf(r routing, l cloudsim.LoadBalancer, li networkListener) networkListenerDescription {
	d := networkListenerDescription{ARN: listenerARN(l, li), LoadBalancer: loadBalancerARN(l), Port: li.Doc.Port, Protocol: li.Doc.Protocol}
	if g, ok := r.getTargetGroup(li.Doc.TargetGroup); ok {
		d.Actions.Items = []forwardAction{{"forward", targetGroupARN(g), 1}}
	}
	return d
}

func listenerAnswer(q *query, next string, found ...networkListenerDescription) *queryAnswer {
	return networkAnswer(q, networkResult{Listeners: &members[networkListenerDescription]{found}, Next: next})
}

// decodeActions decodes the parameter DefaultActions. It returns the ARN of the target group to
// which the listener forwards connections, or "" if the list is empty.
func (q *query) decodeActions() (wanted string) {
	n := 0
	q.forEach("DefaultActions.member", func(prefix string) {
		if v := q.requiredText(prefix + "Type"); v != "" && v != "forward" {
			q.fail(dialect.Unsupported{What: "an action of the type " + v, Why: "a listener of a network load balancer forwards connections: use forward"})
		}
		wanted = q.requiredText(prefix + "TargetGroupArn")
		q.integer(prefix+"Order", 1, 50000, 1)
		n++
	})
	if n > 1 {
		q.fail(coded(http.StatusBadRequest, "TooManyActions", "a listener of a network load balancer has exactly one element in DefaultActions"))
	}
	return wanted
}

func createNetworkListener(q *query) (any, error) {
	user, groupARN, given := q.requiredText("LoadBalancerArn"), q.decodeActions(), labelsOf(q.decodeTags("Tags.member"))
	li := networkListener{Doc: listenerDocument{Protocol: q.decodeProtocol("a listener", ""), Port: q.requiredInteger("Port", 1, 65535)}}
	q.checkPresent(groupARN != "", "DefaultActions")
	if err := q.finish(); err != nil {
		return nil, err
	}
	l, err := findNetworkLoadBalancer(q, user)
	if err != nil {
		return nil, err
	}
	r, err := readRouting(q)
	if err != nil {
		return nil, err
	}
	g, err := r.findTargetGroup(q, groupARN)
	if err != nil {
		return nil, err
	}
	li.Doc.LoadBalancer, li.Doc.TargetGroup = l.ID, g.ID
	if li.Labels, err = dialect.WithLabels(given, nil); err != nil {
		return nil, err
	}
	if n := slices.IndexFunc(r.listeners, func(have networkListener) bool { return have.Doc == li.Doc }); n >= 0 {
		return listenerAnswer(q, "", networkListenerOf(r, l, r.listeners[n])), nil // the same request returns the existing listener, as in AWS
	}
	return storeListener(q, l, r, li)
}

// modifyListener changes the port, the protocol or the target group of a listener.
func modifyListener(q *query) (any, error) {
	wanted, groupARN, port := q.requiredText("ListenerArn"), q.decodeActions(), q.integer("Port", 1, 65535, 0)
	protocol := ""
	if q.left["Protocol"] != "" {
		protocol = q.decodeProtocol("a listener", "")
	}
	if err := q.finish(); err != nil {
		return nil, err
	}
	r, err := readRouting(q)
	if err != nil {
		return nil, err
	}
	l, li, err := r.findListener(q, wanted)
	if err != nil {
		return nil, err
	}
	li.Doc.Port, li.Doc.Protocol = cmp.Or(port, li.Doc.Port), cmp.Or(protocol, li.Doc.Protocol)
	if groupARN != "" {
		g, err := r.findTargetGroup(q, groupARN)
		if err != nil {
			return nil, err
		}
		li.Doc.TargetGroup = g.ID
	}
	return storeListener(q, l, r, li)
}

func (r routing) findListener(q *query, wanted string) (l cloudsim.LoadBalancer, li networkListener, err error) {
	id, err := idFromARN[cloudsim.RecordID](wanted, arnListener, groupPrefix, "a listener")
	if err != nil {
		return l, li, err
	}
	missing := coded(http.StatusBadRequest, "ListenerNotFound", "the listener "+clipARN(wanted)+" does not exist")
	n := slices.IndexFunc(r.listeners, func(li networkListener) bool { return li.ID == id })
	if n < 0 {
		return l, li, missing
	}
	li = r.listeners[n]
	l, err = q.Cloud.GetLoadBalancer(q.Context(), li.Doc.LoadBalancer)
	if errors.Is(err, cloudsim.NotFound) || err == nil && (!isNetwork(q.region())(l) || listenerARN(l, li) != wanted) {
		err = missing
	}
	return l, li, err
}

// storeListener stores a new or changed listener. It updates the load balancer before and after it
// stores the listener; see applyRecords.
func storeListener(q *query, l cloudsim.LoadBalancer, r routing, li networkListener) (any, error) {
	if err := r.checkListener(q, l, li); err != nil {
		return nil, err
	}
	users := []cloudsim.LoadBalancerID{l.ID}
	if err := applyRecords(q, users, func(r *routing) { r.listeners = put(r.listeners, li) }); err != nil {
		return nil, err
	}
	li.Name = li.Doc.recordName()
	li, err := storeObject(q, listenerRecords, li)
	if err != nil {
		undoRecords(q, users)
	}
	switch {
	case errors.Is(err, cloudsim.Exists):
		return nil, errDuplicateListener(li)
	case err != nil:
		return nil, translateKind(err, map[cloudsim.Kind]string{cloudsim.Exhausted: "TooManyListeners"})
	}
	if err := applyRecords(q, users, nil); err != nil {
		return nil, err
	}
	return listenerAnswer(q, "", networkListenerOf(r, l, li)), nil
}

func errDuplicateListener(li networkListener) error {
	return coded(http.StatusBadRequest, "DuplicateListener", fmt.Sprintf("another listener of the load balancer has the same port %d, and a protocol that overlaps %s", li.Doc.Port, li.Doc.Protocol))
}

// checkListener returns an error if the new or changed listener li of the load balancer l breaks
// one of these rules:
//   - The target group must be in the VPC of l. Its protocol must be TCP_UDP or the protocol of li.
//   - No other listener of l may overlap li (see the method overlaps).
//   - No other load balancer may use the target group.
func (r routing) checkListener(q *query, l cloudsim.LoadBalancer, li networkListener) error {
	g, ok := r.getTargetGroup(li.Doc.TargetGroup)
	if !ok {
		return errNoTargetGroup(string(li.Doc.TargetGroup)) // another client has deleted the record
	}
	if g.Doc.Protocol != li.Doc.Protocol && g.Doc.Protocol != "TCP_UDP" {
		return coded(http.StatusBadRequest, "IncompatibleProtocols", "a listener with the protocol "+li.Doc.Protocol+" cannot forward to a target group with the protocol "+g.Doc.Protocol)
	}
	if string(g.Doc.Network) != l.Labels[labelNetwork] {
		return coded(http.StatusBadRequest, "InvalidConfigurationRequest", "the target group and the load balancer must belong to one VPC")
	}
	if slices.ContainsFunc(r.listeners, func(have networkListener) bool { return have.ID != li.ID && have.Doc.overlaps(li.Doc) }) {
		return errDuplicateListener(li)
	}
	live, err := listNetworkLoadBalancers(q)
	if err != nil {
		return err
	}
	for _, other := range r.findLiveUsers(live, g.ID) {
		if other.ID != l.ID {
			return coded(http.StatusBadRequest, "TargetGroupAssociationLimit", "the load balancer "+loadBalancerARN(other)+" uses the target group already: create another target group")
		}
	}
	return nil
}

// deleteListener deletes a listener. It returns an error if the listener does not exist, as AWS
// does.
func deleteListener(q *query) (any, error) {
	wanted := q.requiredText("ListenerArn")
	if err := q.finish(); err != nil {
		return nil, err
	}
	r, err := readRouting(q)
	if err != nil {
		return nil, err
	}
	l, li, err := r.findListener(q, wanted)
	if err != nil {
		return nil, err
	}
	this := func(have networkListener) bool { return have.ID == li.ID }
	users := []cloudsim.LoadBalancerID{l.ID}
	if err := applyRecords(q, users, func(r *routing) { r.listeners = slices.DeleteFunc(r.listeners, this) }); err != nil {
		return nil, err
	}
	if err := deleteListenerRecords(q, r.listeners, this); err != nil {
		undoRecords(q, users)
		return nil, err
	}
	return emptyAnswer(q), applyRecords(q, users, nil)
}

func deleteListenerRecords(q *query, all []networkListener, filter func(networkListener) bool) error {
	for _, li := range all {
		if !filter(li) {
			continue
		}
		if err := q.Cloud.DeleteRecord(q.Context(), li.ID, 0); err != nil && !errors.Is(err, cloudsim.NotFound) {
			return err
		}
	}
	return nil
}

func describeListeners(q *query) (any, error) {
	user, arns, p := q.text("LoadBalancerArn"), q.textList("ListenerArns.member"), q.decodeMarkerPage()
	if err := q.finish(); err != nil {
		return nil, err
	}
	if (user == "") == (len(arns) == 0) {
		return nil, coded(http.StatusBadRequest, "ValidationError", "the request must have either the parameter LoadBalancerArn or ListenerArns")
	}
	r, err := readRouting(q)
	if err != nil {
		return nil, err
	}
	var found []networkListenerDescription
	for _, wanted := range arns {
		l, li, err := r.findListener(q, wanted)
		if err != nil {
			return nil, err
		}
		found = append(found, networkListenerOf(r, l, li))
	}
	if user == "" {
		return listenerAnswer(q, "", found...), nil
	}
	l, err := findNetworkLoadBalancer(q, user)
	if err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(slices.Clone(r.listeners), func(li networkListener) bool { return li.Doc.LoadBalancer != l.ID })
	all, next := pageOf(p, all, func(li networkListener) string { return string(li.ID) })
	for _, li := range all {
		found = append(found, networkListenerOf(r, l, li))
	}
	return listenerAnswer(q, next, found...), nil
}
