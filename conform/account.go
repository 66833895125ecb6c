package conform

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Account is a service account of the cluster.
type Account struct {
	// User is the name of the account's user.
	User string
	// Kubeconfig is the content of a kubeconfig file with a token of the account. ApplyAccount
	// requests a token that is valid for four hours.
	Kubeconfig []byte
}

// ApplyAccount creates the service accounts, roles and role bindings of a manifest, such as the
// manifest of a provider's CCM. It ignores objects of other kinds, and does not change objects that
// already exist. It returns the first service account in the manifest, or an error if the manifest
// has no service account.
func ApplyAccount(ctx context.Context, config *rest.Config, manifest io.Reader) (Account, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return Account{}, err
	}
	var account *v1.ServiceAccount
	for docs := yamlreader.NewYAMLReader(bufio.NewReader(manifest)); ; {
		raw, err := docs.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Account{}, err
		}
		if len(bytes.TrimSpace(raw)) == 0 {
			continue
		}
		object, kind, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		if runtime.IsNotRegisteredError(err) || runtime.IsMissingKind(err) {
			continue // another kind, or only comments
		}
		if err != nil {
			return Account{}, err
		}
		if a, ok := object.(*v1.ServiceAccount); ok && account == nil {
			account = a
		}
		if err := createAccountObject(ctx, kube, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return Account{}, fmt.Errorf("create %s: %w", kind.Kind, err)
		}
	}
	if account == nil {
		return Account{}, errors.New("the manifest has no ServiceAccount")
	}
	hours := int64(4 * 3600)
	t, err := kube.CoreV1().ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours}}, metav1.CreateOptions{})
	if err != nil {
		return Account{}, fmt.Errorf("create a token of the service account %s: %w", account.Name, err)
	}
	raw, err := kubeconfig(config, t.Status.Token)
	return Account{User: "system:serviceaccount:" + account.Namespace + ":" + account.Name, Kubeconfig: raw}, err
}

// createAccountObject creates an object of the kinds that ApplyAccount supports.
func createAccountObject(ctx context.Context, kube kubernetes.Interface, object runtime.Object) (err error) {
	switch o := object.(type) {
	case *v1.ServiceAccount:
		_, err = kube.CoreV1().ServiceAccounts(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	case *rbacv1.ClusterRole:
		_, err = kube.RbacV1().ClusterRoles().Create(ctx, o, metav1.CreateOptions{})
	case *rbacv1.ClusterRoleBinding:
		_, err = kube.RbacV1().ClusterRoleBindings().Create(ctx, o, metav1.CreateOptions{})
	case *rbacv1.Role:
		_, err = kube.RbacV1().Roles(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	case *rbacv1.RoleBinding:
		_, err = kube.RbacV1().RoleBindings(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	}
	return err
}
