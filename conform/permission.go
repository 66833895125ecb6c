package conform

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// requiredVerbs maps resources to the verbs that the controllers in
// k8s.io/cloud-provider need.
var requiredVerbs = map[string]string{
	"nodes":           "get list watch update patch delete",
	"nodes/status":    "patch",
	"services":        "list watch",
	"services/status": "patch",
	"events":          "create patch",
}

// checkPermissions asks the API server about the permissions of the CCM's user. It returns an error
// if the user lacks a permission in requiredVerbs. It also returns an error if the user has all
// permissions of the cluster, because these permissions hide a missing permission in the provider's
// role. Providers have shipped roles that lacked a necessary permission, for example
// kubernetes/cloud-provider-openstack#3225.
func checkPermissions(ctx context.Context, e *env) error {
	allowed := func(group, resource, verb string) (bool, error) {
		resource, sub, _ := strings.Cut(resource, "/")
		user, groups := e.caps.User, []string{"system:authenticated"}
		if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
			namespace, _, _ := strings.Cut(account, ":")
			groups = append(groups, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
		}
		r, err := e.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: groups,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: group, Resource: resource, Subresource: sub, Verb: verb, Namespace: scope(resource)},
		}}, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("review the access of %s: %w", user, err)
		}
		return r.Status.Allowed, nil
	}
	var missing []error
	for resource, verbs := range requiredVerbs {
		for verb := range strings.FieldsSeq(verbs) {
			ok, err := allowed("", resource, verb)
			if err != nil {
				return err
			}
			if !ok {
				missing = append(missing, fmt.Errorf("the user %s has no permission to %s %s", e.caps.User, verb, resource))
			}
		}
	}
	all, err := allowed("*", "*", "*")
	if err != nil {
		return err
	}
	if all {
		missing = append(missing, fmt.Errorf("the user %s has all permissions, so the role of the provider is not in use", e.caps.User))
	}
	return errors.Join(missing...)
}

// scope returns the namespace in which checkPermissions reviews the access to a resource. The
// result "" means all namespaces.
func scope(resource string) string {
	if resource == "events" {
		return v1.NamespaceDefault
	}
	return ""
}
