package aws

import (
	"errors"
	"net/http"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

// refuseTrue reads boolean parameters that turn on features which this cloud does not have. If one
// of these parameters is true, refuseTrue stores an error in q. The text of this error contains the
// given advice.
func (q *query) refuseTrue(advice string, names ...string) {
	for _, name := range names {
		if q.flag(name) {
			q.fail(dialect.Unsupported{What: "the parameter " + name + " with the value true", Why: advice})
		}
	}
}

// checkPresent stores the error MissingParameter in q if isPresent is false.
func (q *query) checkPresent(isPresent bool, name string) {
	if !isPresent {
		q.fail(coded(http.StatusBadRequest, "MissingParameter", "the parameter "+name+" is required"))
	}
}

// translateField translates an error of this cloud about a field of a request. The new error names
// a parameter of EC2 instead of the field. The keys of the given map are names of fields, and the
// values are names of EC2's parameters. translateField does not change other errors.
func translateField(err error, parameters map[string]string) error {
	e, ok := errors.AsType[*cloudsim.Error](err)
	if !ok || e.Kind != cloudsim.Invalid || parameters[firstField(e)] == "" {
		return err
	}
	return coded(http.StatusBadRequest, "InvalidParameterValue", "the parameter "+parameters[firstField(e)]+" "+e.Fields[0].Reason)
}

// translateKind translates an error of this cloud to an error with a code of AWS. The keys of the
// given map are error kinds, and the values are codes of AWS. translateKind changes neither errors
// about a rate limit nor errors of kinds that are not in the map.
func translateKind(err error, codes map[cloudsim.Kind]string) error {
	e, ok := errors.AsType[*cloudsim.Error](err)
	if !ok || e.RetryAfter > 0 || codes[e.Kind] == "" {
		return err
	}
	return coded(http.StatusBadRequest, codes[e.Kind], e.Msg)
}
