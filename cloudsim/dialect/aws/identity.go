package aws

import (
	"fmt"

	"github.com/cloudsim-dev/allinone/cloudsim"
	"github.com/cloudsim-dev/allinone/cloudsim/dialect"
)

type callerIdentityAnswer struct {
	ARN     string `xml:"GetCallerIdentityResult>Arn"`
	UserID  string `xml:"GetCallerIdentityResult>UserId"`
	Account string `xml:"GetCallerIdentityResult>Account"`
	ID      string `xml:"ResponseMetadata>RequestId"`
}

func (a *callerIdentityAnswer) setRequestID(id string) { a.ID = id }

// accountOf returns the number of the AWS account for a project. The number has 12 digits.
func accountOf(p cloudsim.ProjectID) string { return fmt.Sprintf("%012d", dialect.Number(p)) }

func getCallerIdentity(q *query) (any, error) {
	if err := q.finish(); err != nil {
		return nil, err
	}
	me, err := q.Cloud.WhoAmI(q.Context())
	if err != nil {
		return nil, err
	}
	return &callerIdentityAnswer{
		Account: accountOf(me.Project), UserID: string(me.ServiceAccount), ARN: "arn:aws:iam::" + accountOf(me.Project) + ":user/" + me.Caller,
	}, nil
}
