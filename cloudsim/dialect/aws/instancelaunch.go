package aws

import (
	"cmp"
	"encoding/base64"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// These labels store properties that EC2's instances have, but this cloud's instances do not have.
const (
	labelImage           = dialect.LabelPrefix + "image"             // AWS's id of the image
	labelSourceDestCheck = dialect.LabelPrefix + "source-dest-check" // "false" or "true" (default)
)

const maxInstanceGroups = 5 // largest number of security groups of an instance, as in EC2

// imageRE is the format of the ids of images.
var imageRE = regexp.MustCompile(`^ami-([0-9a-f]{8}|[0-9a-f]{17})$`)

// launchParameters maps the fields of cloudsim.CreateInstance to the parameters of RunInstances.
var launchParameters = map[string]string{
	"address": "PrivateIpAddress", "labels": "TagSpecification", "serviceAccount": "IamInstanceProfile.Name", "subnet": "SubnetId", "type": "InstanceType", "userData": "UserData", "zone": "Placement.AvailabilityZone",
}

// launchRequest contains the decoded parameters of a call of RunInstances.
type launchRequest struct {
	cloudsim.CreateInstance // without a name
	subnet, token           string
	groups                  []string
	least, most             int // smallest and largest number of instances
}

func (q *query) decodeLaunch() launchRequest {
	image := q.requiredText("ImageId")
	l := launchRequest{
		subnet: q.text("SubnetId"), token: q.clientToken(), groups: q.textList("SecurityGroupId"),
		least: q.requiredInteger("MinCount", 1, maxList), most: q.requiredInteger("MaxCount", 1, maxList),
	}
	l.Type, l.Zone = q.requiredText("InstanceType"), q.text("Placement.AvailabilityZone")
	l.Address, l.ServiceAccount, l.Labels = q.text("PrivateIpAddress"), q.text("IamInstanceProfile.Name"), q.decodeTagsFor("instance")
	encoded := q.text("UserData")
	data, err := base64.StdEncoding.DecodeString(encoded)
	l.UserData = string(data)
	if v := q.text("Placement.Tenancy"); v != "" && v != "default" {
		q.fail(dialect.Unsupported{What: "the tenancy " + clip(v), Why: "use the tenancy default"})
	}
	q.refuseTrue("omit the parameter", "Monitoring.Enabled", "EbsOptimized", "DisableApiTermination", "DisableApiStop", "HibernationOptions.Configured", "EnclaveOptions.Enabled")
	switch {
	case err != nil:
		q.fail(coded(http.StatusBadRequest, "InvalidUserData.Malformed", "the parameter UserData must be in base64: "+err.Error()))
	case image != "" && !imageRE.MatchString(image):
		q.fail(coded(http.StatusBadRequest, "InvalidAMIID.Malformed", "the parameter ImageId must be ami- and 8 or 17 hex digits, got "+clip(image)))
	case l.most < l.least:
		q.fail(errInvalid("MaxCount", strconv.Itoa(l.most), "at least MinCount"))
	case l.Address != "" && l.most > 1:
		q.fail(coded(http.StatusBadRequest, "InvalidParameterCombination", "the parameter PrivateIpAddress needs MaxCount 1"))
	case len(l.groups) > maxInstanceGroups:
		q.fail(errInvalid("SecurityGroupId", strconv.Itoa(len(l.groups)), "a list of at most 5 groups"))
	}
	l.Labels, err = dialect.WithLabels(l.Labels, map[string]string{labelImage: image, labelParameters: q.parametersHash(l.Labels)})
	if err != nil {
		q.fail(err)
	}
	return l
}

// runInstances creates instances. Requests to EC2 contain no names. So the name of an instance is a
// hash, which depends on the ClientToken. If a request repeats the ClientToken of an earlier
// request, runInstances finds the instances of the earlier request.
func runInstances(q *query) (any, error) {
	l := q.decodeLaunch()
	if err := q.finish(); err != nil {
		return nil, err
	}
	if _, err := q.Cloud.GetInstanceType(q.Context(), l.Type); errors.Is(err, cloudsim.NotFound) {
		return nil, errInvalid("InstanceType", l.Type, "the name of an instance type that DescribeInstanceTypes lists")
	} else if err != nil {
		return nil, err
	}
	network, err := l.place(q)
	if err != nil {
		return nil, err
	}
	if err := l.setSecurityGroups(q, network); err != nil {
		return nil, err
	}
	var all, made []cloudsim.Instance // made contains only the instances that this request has created
	for n := range l.most {
		i, isNew, err := l.create(q, n)
		if err != nil && (n < l.least || failureOf(err).Code != "InstanceLimitExceeded") {
			return nil, terminateCreated(q, made, err)
		}
		if err != nil {
			break // as in EC2, the result has fewer instances than MaxCount
		}
		all = append(all, i)
		if isNew {
			made = append(made, i)
		}
	}
	r, err := readInstanceResources(q, all)
	if err != nil {
		return nil, terminateCreated(q, made, err)
	}
	return &runInstancesAnswer{reservation: reservationOf(all, r)}, nil
}

type runInstancesAnswer struct {
	ec2Answer
	reservation
}

// place sets the zone and the subnet of the instances, and returns their network. If the request
// contains neither a zone nor a subnet, place chooses the first zone of the region.
func (l *launchRequest) place(q *query) (cloudsim.NetworkID, error) {
	k, err := subnetsWithZones(q)
	if err != nil {
		return "", err
	}
	if l.subnet != "" {
		found, err := readByIDs(q, k, []string{l.subnet}, inRegion(q.region()))
		if err != nil {
			return "", err
		}
		l.Zone, l.Subnet = cmp.Or(l.Zone, found[0].Zone), found[0].ID
		return found[0].Network, checkZone(q, "Placement.AvailabilityZone", l.Zone)
	}
	if l.Zone == "" {
		if l.Zone, err = firstZone(q); err != nil {
			return "", err
		}
	}
	n, err := findNetwork(q, "")
	if err != nil {
		return "", err
	}
	return n.ID, checkZone(q, "Placement.AvailabilityZone", l.Zone)
}

// setSecurityGroups sets the security groups of the instances. Each group must belong to the given
// network.
func (l *launchRequest) setSecurityGroups(q *query, network cloudsim.NetworkID) error {
	if len(l.groups) == 0 {
		return nil
	}
	_, err := readByIDs(q, groups, l.groups, func(g group) bool { return g.Network == network })
	l.Labels[labelGroups] = strings.Join(l.groups, ",")
	return err
}

// create creates one instance of a request. The number n distinguishes the instances of the
// request. If an earlier request with the same ClientToken has created the instance with this
// number, create returns the existing instance. Then the result isNew is false.
//
// The cloud may create the instance although the call fails, e.g. if the reply is lost. If the
// request has no ClientToken, create then terminates this instance. The creation and the
// termination continue even if the client disconnects.
func (l *launchRequest) create(q *query, n int) (i cloudsim.Instance, isNew bool, err error) {
	req := l.CreateInstance
	req.Name = q.nameFor("instance", l.token+"/"+strconv.Itoa(n))
	if i, found, err := findCreated(q, instances, req.Name, req.Labels[labelParameters]); found || err != nil {
		return i, false, err
	}
	q, cancel := q.detached()
	defer cancel()
	i, err = q.Cloud.CreateInstance(q.Context(), req)
	if err == nil {
		return i, true, nil
	}
	err = translateKind(translateField(err, launchParameters), map[cloudsim.Kind]string{cloudsim.Exhausted: "InstanceLimitExceeded", cloudsim.Exists: mismatch})
	if q.Form.Get("ClientToken") != "" {
		return i, false, err // the instance with this name may belong to another request with the same ClientToken
	}
	lost, found, findErr := findCreated(q, instances, req.Name, req.Labels[labelParameters])
	if found {
		err = terminateCreated(q, []cloudsim.Instance{lost}, err)
	}
	return i, false, cmp.Or(findErr, err)
}

// terminateCreated terminates the instances that a failed request has created, even if the client
// disconnects. It returns cause, which is the error of the request. If a termination fails, it
// returns the errors of all failed terminations instead.
//
// If cause has a status of 500 or more, and the request has a ClientToken, terminateCreated
// terminates no instance. In this case the client repeats the request, and the repeated request
// finds the instances.
//
// terminateCreated keeps the instances of an earlier request with the same ClientToken, because
// these instances may already be in use. So if a request fails with a status of 500 or more, and
// its repetition fails with another status, the instances of the first request stay.
func terminateCreated(q *query, made []cloudsim.Instance, cause error) error {
	if failureOf(cause).Status >= http.StatusInternalServerError && q.Form.Get("ClientToken") != "" {
		return cause
	}
	q, cancel := q.detached()
	defer cancel()
	var failed error
	for _, i := range made {
		if _, err := q.Cloud.DeleteInstance(q.Context(), i.ID); !errors.Is(err, cloudsim.NotFound) {
			failed = errors.Join(failed, err)
		}
	}
	return cmp.Or(failed, cause)
}

func firstZone(q *query) (name string, err error) {
	all, err := listAll(q, zones)
	for _, z := range all {
		if z.Region == q.region() && (name == "" || z.Name < name) {
			name = z.Name
		}
	}
	if err == nil && name == "" {
		err = coded(http.StatusBadRequest, "InvalidParameterValue", "the region "+clip(q.region())+" has no zones: see DescribeRegions")
	}
	return name, err
}

// checkZone returns an error if zone is not the name of a zone in the region of the request.
func checkZone(q *query, parameter, zone string) error {
	all, err := listAll(q, zones)
	if err != nil {
		return err
	}
	for _, z := range all {
		if z.Name == zone && z.Region == q.region() {
			return nil
		}
	}
	return coded(http.StatusBadRequest, "InvalidZone.NotFound", "the parameter "+parameter+" must be a zone of the region, got "+clip(zone)+": see DescribeAvailabilityZones")
}
