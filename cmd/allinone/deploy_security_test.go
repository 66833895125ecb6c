package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	psapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// podSecurityExceptions maps a workload in deploy/ to the checks of the Pod Security level
// "restricted" that this workload fails. deploy/README.md contains the reason for each exception.
var podSecurityExceptions = map[string][]string{
	"cloudsim/deployment.yaml Deployment/cloudsim":            {"host namespaces"},
	"ccm/deployment.yaml Deployment/cloud-controller-manager": {"host namespaces"},
	"csi/node.yaml DaemonSet/csi-node":                        {"allowPrivilegeEscalation != false", "privileged", "restricted volume types", "runAsNonRoot != true", "runAsUser=0", "unrestricted capabilities"},
	"proxy/agent.yaml DaemonSet/network-proxy-agent":          {"host namespaces"},
	"proxy/server.yaml DaemonSet/network-proxy-server":        {"host namespaces", "restricted volume types", "runAsNonRoot != true", "runAsUser=0"},
}

// TestDeployPodSecurity checks each workload in deploy/ against the Pod Security level
// "restricted". It uses the evaluator of Kubernetes.
func TestDeployPodSecurity(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../deploy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	restricted := psapi.LevelVersion{Level: psapi.LevelRestricted, Version: psapi.LatestVersion()}
	workloads := 0
	for name, m := range deployedObjects(t) {
		spec := m.Spec.Template.Spec
		if len(spec.Containers) == 0 {
			continue
		}
		workloads++
		var failed []string
		for _, r := range evaluator.EvaluatePod(restricted, &metav1.ObjectMeta{}, &spec) {
			if !r.Allowed {
				failed = append(failed, r.ForbiddenReason)
			}
		}
		slices.Sort(failed)
		if d := cmp.Diff(podSecurityExceptions[name], failed); d != "" {
			t.Errorf("%s fails other Pod Security checks than podSecurityExceptions lists (-listed +failed):\n%s", name, d)
		}
		if _, workload, _ := strings.Cut(name, "/"); len(failed) > 0 && !strings.Contains(string(readme), "`"+workload[strings.LastIndex(workload, "/")+1:]+"`") {
			t.Errorf("deploy/README.md gives no reason for the exceptions of %s", name)
		}
	}
	if workloads < 5 {
		t.Errorf("found %d workloads, want all of deploy/", workloads)
	}
}

// TestDeployFileModes proves that only the user and the group of a pod can read the Secrets and
// ConfigMaps of the pod. It also proves that every pod has the runtime's default seccomp profile.
func TestDeployFileModes(t *testing.T) {
	for name, m := range deployedObjects(t) {
		spec := m.Spec.Template.Spec
		if len(spec.Containers) == 0 {
			continue
		}
		if !hasRuntimeDefaultSeccomp(spec) {
			t.Errorf("%s: set seccompProfile: {type: RuntimeDefault}", name)
		}
		for _, v := range spec.Volumes {
			var mode *int32
			switch {
			case v.Secret != nil:
				mode = v.Secret.DefaultMode
			case v.ConfigMap != nil:
				mode = v.ConfigMap.DefaultMode
			case v.Projected != nil:
				mode = v.Projected.DefaultMode
			default:
				continue
			}
			if mode == nil || *mode&^0o440 != 0 {
				t.Errorf("%s: volume %s: set defaultMode to 256 (0400) or 288 (0440)", name, v.Name)
			}
		}
	}
}

func hasRuntimeDefaultSeccomp(spec corev1.PodSpec) bool {
	isDefault := func(p *corev1.SeccompProfile) bool {
		return p != nil && p.Type == corev1.SeccompProfileTypeRuntimeDefault
	}
	if spec.SecurityContext != nil && isDefault(spec.SecurityContext.SeccompProfile) {
		return true
	}
	for _, c := range spec.Containers {
		if c.SecurityContext == nil || !isDefault(c.SecurityContext.SeccompProfile) {
			return false
		}
	}
	return true
}

// TestDeployListeners proves that components in the host network do not listen on all addresses. It
// also proves that a NetworkPolicy selects each component in the pod network, and that no component
// sends credentials without TLS.
func TestDeployListeners(t *testing.T) {
	raw, err := os.ReadFile("../../deploy/csi/networkpolicy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var networkPolicy networkingv1.NetworkPolicy
	if err := yaml.UnmarshalStrict(raw, &networkPolicy); err != nil {
		t.Fatal(err)
	}
	selector, err := metav1.LabelSelectorAsSelector(&networkPolicy.Spec.PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range deployedObjects(t) {
		spec := m.Spec.Template.Spec
		if len(spec.Containers) > 0 && !spec.HostNetwork && !selector.Matches(labels.Set(m.Spec.Template.Labels)) {
			t.Errorf("%s: no NetworkPolicy selects it", name)
		}
		for _, c := range spec.Containers {
			if spec.HostNetwork && c.Image == "allinone" {
				for _, flag := range flagsWithoutAddress(t, c.Args) {
					t.Errorf("%s: without %s, the container listens on all addresses of the node", name, flag)
				}
			}
			for _, a := range c.Args {
				if strings.Contains(a, "http://") {
					t.Errorf("%s: %s sends credentials without TLS", name, a)
				}
				if spec.HostNetwork && (strings.Contains(a, "=0.0.0.0") || strings.Contains(a, "=[::]") || strings.Contains(a, "-address=:")) {
					t.Errorf("%s: %s listens on all addresses of the node", name, a)
				}
			}
		}
	}
}

// flagsWithoutAddress returns the names of the flags that are missing from args and have the
// default "all addresses". It omits two flags of the proxy server in deploy/proxy. This server has
// no clients over TCP, so it does not need --server-bind-address. It accepts agents on all
// addresses, so it does not need --agent-bind-address.
func flagsWithoutAddress(t *testing.T, args []string) (names []string) {
	t.Helper()
	root := newRootCommand(cli.Env{Getenv: func(string) string { return "" }, Stdout: io.Discard, Stderr: io.Discard})
	cmd, rest, err := root.Find(args)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		set := slices.ContainsFunc(rest, func(a string) bool { return strings.HasPrefix(a, "--"+f.Name+"=") })
		if strings.HasSuffix(f.Usage, "(default: all addresses)") && !set && f.Name != "server-bind-address" && f.Name != "agent-bind-address" {
			names = append(names, "--"+f.Name)
		}
	})
	return names
}

// TestDeployLeases proves that the workloads in deploy cannot change the Leases of Kubernetes' own
// components. With a permission for all Leases of kube-system, a workload could stop kube-scheduler.
func TestDeployLeases(t *testing.T) {
	rules := 0
	for name, m := range deployedObjects(t) {
		for _, r := range m.Rules {
			if !slices.Contains(r.Resources, "leases") && !slices.Contains(r.Resources, "*") {
				continue
			}
			rules++
			if len(r.ResourceNames) == 0 && !slices.Equal(r.Verbs, []string{"create"}) {
				t.Errorf("%s permits %v of all Leases: add resourceNames", name, r.Verbs)
			}
			if i := slices.IndexFunc(r.ResourceNames, func(lease string) bool {
				return strings.HasPrefix(lease, "kube-") || strings.HasPrefix(lease, "apiserver-")
			}); i >= 0 {
				t.Errorf("%s permits %v of the Lease %s, which belongs to Kubernetes", name, r.Verbs, r.ResourceNames[i])
			}
		}
	}
	if rules < 4 {
		t.Errorf("found %d rules for Leases, want the rules of the CCM and of the sidecars", rules)
	}
}

// taggedImage matches an image name with a tag in a manifest, in the Dockerfile or in a Compose
// file.
var taggedImage = regexp.MustCompile(`(?m)(?:image: |_IMAGE=|_IMAGE:-)((?:[a-z0-9.-]+/)*[a-z0-9-]+:[A-Za-z0-9][\w.-]*)(@sha256:[0-9a-f]{64})?`)

// TestDeployImagesArePinned checks the images that the project does not build. It proves that
// each of these images has a digest or is in deploy/unpinned.txt.
func TestDeployImagesArePinned(t *testing.T) {
	files, err := filepath.Glob("../../deploy/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile("../../deploy/unpinned.txt")
	if err != nil {
		t.Fatal(err)
	}
	unpinned := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			unpinned[line] = false
		}
	}
	for _, file := range append(files, "../../Dockerfile", "../../docker-compose.yaml") {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range taggedImage.FindAllStringSubmatch(string(raw), -1) {
			if image, digest := m[1], m[2]; digest == "" {
				if _, listed := unpinned[image]; !listed {
					t.Errorf("%s: image %s has no digest: run make pin, or add it to deploy/unpinned.txt", file, image)
				}
				unpinned[image] = true
			}
		}
	}
	for image, found := range unpinned {
		if !found {
			t.Errorf("deploy/unpinned.txt lists %s, which no file names without a digest: remove the line", image)
		}
	}
}
