package aws

import (
	"errors"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// refuseTrue reads boolean parameters that turn on features which this cloud does not have. If one
// of these parameters is true, refuseTrue stores an error in q. The parameter why is the advice in
// this error.
func (q *query) refuseTrue(why string, names ...string) {
	for _, name := range names {
		if q.flag(name) {
			q.fail(dialect.Unsupported{What: "the parameter " + name + " with the value true", Why: why})
		}
	}
}

// checkPresent stores the error MissingParameter in q if the request does not contain the parameter
// with the given name. The argument named has reports whether the request contains it.
func (q *query) checkPresent(has bool, name string) {
	if !has {
		q.fail(coded(http.StatusBadRequest, "MissingParameter", "the parameter "+name+" is required"))
	}
}

// translateField translates an error about a field of a request to this cloud, so that the error
// names a parameter of EC2. The map named names contains the parameter for each field.
// translateField does not change other errors.
func translateField(err error, names map[string]string) error {
	e, ok := errors.AsType[*cloudsim.Error](err)
	if !ok || e.Kind != cloudsim.Invalid || names[firstField(e)] == "" {
		return err
	}
	return coded(http.StatusBadRequest, "InvalidParameterValue", "the parameter "+names[firstField(e)]+" "+e.Fields[0].Reason)
}

// translateKind translates an error of this cloud to an error with a code of EC2. The map codes
// contains the code for each error kind. translateKind does not change errors of other kinds or
// errors about a rate limit.
func translateKind(err error, codes map[cloudsim.Kind]string) error {
	e, ok := errors.AsType[*cloudsim.Error](err)
	if !ok || e.RetryAfter > 0 || codes[e.Kind] == "" {
		return err
	}
	return coded(http.StatusBadRequest, codes[e.Kind], e.Msg)
}
