package aws

import (
	"errors"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// The method refuseTrue returns boolean parameters of features that this cloud does not have. It
// accepts only the value false.
func (q *query) refuseTrue(why string, names ...string) {
	for _, name := range names {
		if q.flag(name) {
			q.fail(dialect.Unsupported{What: "the parameter " + name + " with the value true", Why: why})
		}
	}
}

// The method need fails with MissingParameter if a request does not have a parameter.
func (q *query) need(has bool, name string) {
	if !has {
		q.fail(coded(http.StatusBadRequest, "MissingParameter", "the parameter "+name+" is required"))
	}
}

// withParameters returns an error about a field of this cloud's request with the name of EC2's
// parameter. It returns other errors unchanged.
func withParameters(err error, names map[string]string) error {
	e, ok := errors.AsType[*cloudsim.Error](err)
	if !ok || e.Kind != cloudsim.Invalid || names[field(e)] == "" {
		return err
	}
	return coded(http.StatusBadRequest, "InvalidParameterValue", "the parameter "+names[field(e)]+" "+e.Fields[0].Reason)
}

// withCodes returns an error of this cloud with the code of EC2 for its kind. It returns other
// errors, and errors about a rate limit, unchanged.
func withCodes(err error, codes map[cloudsim.Kind]string) error {
	e, ok := errors.AsType[*cloudsim.Error](err)
	if !ok || e.RetryAfter > 0 || codes[e.Kind] == "" {
		return err
	}
	return coded(http.StatusBadRequest, codes[e.Kind], e.Msg)
}
