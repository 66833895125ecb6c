package aws

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// The functions in this file make requests idempotent. The name of a new resource is a hash that
// depends on the parameter ClientToken. A label of the resource contains a hash of the whole
// request. So a repeated request finds the resource of the first request, even if another client
// has changed the tags of the resource.

// labelParameters is the label with the hash of the request that created the resource.
const labelParameters = dialect.LabelPrefix + "parameters"

// mismatch is EC2's error code for a request that has the ClientToken of an earlier request, but
// other parameters. If the cloud receives both requests at the same time, it refuses one request
// with the error kind Exists. The dialect translates this error to mismatch, too.
const mismatch = "IdempotentParameterMismatch"

var clientTokenRE = regexp.MustCompile(`^[!-~]{1,64}$`)

// clientToken returns the parameter ClientToken. If the parameter is absent, clientToken returns
// random text, so that each request creates a new resource. The id of the request is not unique,
// because a client can repeat the header X-Request-Id.
func (q *query) clientToken() string {
	v := q.text("ClientToken")
	if v != "" && !clientTokenRE.MatchString(v) {
		q.fail(errInvalid("ClientToken", v, "1 to 64 printable ASCII characters"))
	}
	return cmp.Or(v, rand.Text())
}

// parametersHash returns a hash of all parameters of the request. The argument tags contains the
// tags in the request. The hash does not depend on the order of the tags, because the EBS CSI
// driver may change this order when it repeats a request.
func (q *query) parametersHash(tags map[string]string) string {
	const list = "TagSpecification."
	form := url.Values{}
	for name, values := range q.Form {
		if !strings.HasPrefix(name, list) {
			form[name] = values
		}
	}
	for key, value := range tags {
		form.Set(list+key, value)
	}
	sum := sha256.Sum256([]byte(form.Encode()))
	return hex.EncodeToString(sum[:16])
}

// nameFor returns the name of a new resource of the given kind. In EC2, a ClientToken is valid in
// one region. So the name depends on the region of the request.
func (q *query) nameFor(kind, token string) string {
	return dialect.Name(kind + "/" + q.region() + "/" + token)
}

// findCreated looks for the resource with the given name. The resource exists if an earlier request
// with the same ClientToken has created it. The argument hash is the result of parametersHash. If
// the earlier request had other parameters, findCreated returns an error with the code mismatch, as
// EC2 does.
func findCreated[T any, I ~string](q *query, k kind[T, I], name, hash string) (v T, found bool, err error) {
	l, err := k.all(q.Cloud, q.Context(), cloudsim.ListOptions{Name: name})
	if err != nil || len(l.Items) == 0 {
		return v, false, err
	}
	if v = l.Items[0]; k.meta(v).Labels[labelParameters] != hash {
		return v, false, coded(http.StatusBadRequest, mismatch, "the "+k.one+" "+idOf(k.prefix, k.id(v))+" was created with the same ClientToken and other parameters: use a new ClientToken")
	}
	return v, true, nil
}
