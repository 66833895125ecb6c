package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/cloudsim-dev/allinone/cmd/allinone/internal/cli"
)

// manifest contains the fields that the tests read from an object in deploy.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Rules    []rbacv1.PolicyRule
	Spec     struct {
		Template corev1.PodTemplateSpec
	}
}

// deployedObjects returns the objects in deploy. The key of each object has the form "FILE
// KIND/NAME".
func deployedObjects(t *testing.T) map[string]manifest {
	t.Helper()
	all := map[string]manifest{}
	err := filepath.WalkDir("../../deploy", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" || d.Name() == "kustomization.yaml" {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for docs := yamlreader.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw))); ; {
			doc, err := docs.Read()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			var m manifest
			if err := yaml.Unmarshal(doc, &m); err != nil {
				return err
			}
			all[strings.TrimPrefix(path, "../../deploy/")+" "+m.Kind+"/"+m.Metadata.Name] = m
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestShippedContainersStart checks the containers in deploy that run allinone. It proves that each
// of these containers has valid flags and no unnecessary privileges.
func TestShippedContainersStart(t *testing.T) {
	commands := 0
	for name, m := range deployedObjects(t) {
		for _, c := range m.Spec.Template.Spec.Containers {
			if c.Image != "allinone" {
				continue
			}
			commands++
			root := newRootCommand(cli.Env{Getenv: func(string) string { return "" }, Stdout: io.Discard, Stderr: io.Discard})
			cmd, rest, err := root.Find(c.Args)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			for _, a := range rest {
				flag, _, _ := strings.Cut(a, "=")
				if !cmd.DisableFlagParsing && cmd.Flags().Lookup(strings.TrimPrefix(flag, "--")) == nil {
					t.Errorf("%s: %s has no flag %s", name, cmd.CommandPath(), flag)
				}
			}
			if name == "csi/node.yaml DaemonSet/csi-node" {
				continue // this container needs all privileges, because it creates mounts for the kubelet
			}
			s := c.SecurityContext
			if s == nil || s.Privileged != nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
				t.Errorf("%s: the container has more permissions than necessary: %+v", name, s)
			}
			if s == nil || s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL") {
				t.Errorf("%s: the container does not drop all capabilities: set capabilities.drop to [ALL]", name)
			}
		}
	}
	if commands < 4 {
		t.Errorf("found only %d containers", commands)
	}
}

// TestShippedUsersAndProbes checks the users and the probes of the containers in deploy. Each
// container sets its user, because the image has no suitable user. A privileged container runs as
// root, because any other user would have no capabilities. Containers that share a folder run as
// the same user, so that each container can use the sockets of the other containers. A probe uses a
// port that exists and that the kubelet can reach.
func TestShippedUsersAndProbes(t *testing.T) {
	for name, m := range deployedObjects(t) {
		pod, shares := m.Spec.Template.Spec, map[string]int64{}
		for _, c := range pod.Containers {
			var user *int64
			if pod.SecurityContext != nil {
				user = pod.SecurityContext.RunAsUser
			}
			if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
				user = c.SecurityContext.RunAsUser
			}
			if user == nil {
				t.Errorf("%s: neither the container %s nor its pod sets runAsUser", name, c.Name)
				continue
			}
			if s := c.SecurityContext; s != nil && s.Privileged != nil && *s.Privileged && *user != 0 {
				t.Errorf("%s: container %s is privileged, but its user is %d: a privileged container must run as user 0", name, c.Name, *user)
			}
			for _, v := range c.VolumeMounts {
				if with, shared := shares[v.Name]; shared && with != *user {
					t.Errorf("%s: containers with the users %d and %d share the volume %s: use one user", name, with, *user, v.Name)
				}
				shares[v.Name] = *user
			}
			for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
				if p == nil || p.HTTPGet == nil {
					continue
				}
				port := p.HTTPGet.Port.StrVal
				if port != "" && !slices.ContainsFunc(c.Ports, func(has corev1.ContainerPort) bool { return has.Name == port }) {
					t.Errorf("%s: the probe of container %s uses the port %s, which the container does not declare", name, c.Name, port)
				}
				if slices.ContainsFunc(c.Args, func(a string) bool { return strings.Contains(a, "-bind-address=127.0.0.1:") }) && !pod.HostNetwork {
					t.Errorf("%s: container %s listens at an address that the kubelet's probes cannot reach", name, c.Name)
				}
			}
		}
	}
}
