// Package translate shows how Kubernetes translates volumes of its old in-tree
// plugins into volumes of CSI drivers, and back (KEP-625). It uses
// csi-translation-lib, the library in kubelet, kube-controller-manager,
// kube-scheduler and the sidecars. The package makes no network calls and
// changes no objects.
package translate

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	lib "k8s.io/csi-translation-lib"
)

// Answer is the translation of one object, or of one volume of a pod.
type Answer struct {
	From   string   `json:"from"`             // e.g. StorageClass/old
	Plugin string   `json:"plugin,omitempty"` // in-tree plugin
	Driver string   `json:"driver,omitempty"` // CSI driver that replaces the plugin
	Object any      `json:"object,omitempty"` // nil if Kubernetes does not translate the object
	Why    string   `json:"why,omitempty"`    // the reason if Object is nil
	Notes  []string `json:"notes,omitempty"`  // losses and changes in the translation
}

// Read translates every PersistentVolume, StorageClass and Pod in a file of YAML or JSON documents,
// in the order of the file. It also reads the items of a List, which is the object that kubectl
// prints for several objects. For an object of another kind, the Answer contains no translation.
// Read returns an error if a document is not a valid object, or if the file contains no object.
func Read(file io.Reader) (all []Answer, err error) {
	docs := yaml.NewYAMLReader(bufio.NewReader(file))
	for n := 1; ; n++ {
		raw, err := docs.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		some, err := document(raw)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		all = append(all, some...)
	}
	if len(all) == 0 {
		return nil, errors.New("the input contains no object: give PersistentVolumes, StorageClasses or Pods, as kubectl get -o yaml prints them")
	}
	return all, nil
}

// document translates one document. A document that contains only comments
// gives no answer.
func document(raw []byte) (all []Answer, err error) {
	raw, err = yaml.ToJSON(raw)
	if err != nil || string(raw) == "null" {
		return nil, err
	}
	var list struct {
		Kind  string
		Items []json.RawMessage
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("not a Kubernetes object: %w", err)
	}
	if list.Kind != "List" {
		return object(raw)
	}
	for i, item := range list.Items {
		some, err := object(item)
		if err != nil {
			return nil, fmt.Errorf("items[%d]: %w", i, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

func object(raw []byte) ([]Answer, error) {
	var head metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(raw, &head); err != nil {
		return nil, fmt.Errorf("not a Kubernetes object: %w", err)
	}
	if head.Kind == "" {
		return nil, errors.New("not a Kubernetes object: the field kind is missing")
	}
	from := head.Kind + "/" + head.Name
	read := func(into any) error {
		if err := yaml.UnmarshalStrict(raw, into); err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
		return nil
	}
	switch head.Kind {
	case "StorageClass":
		var sc storagev1.StorageClass
		if err := read(&sc); err != nil {
			return nil, err
		}
		return []Answer{class(from, &sc)}, nil
	case "PersistentVolume":
		var pv corev1.PersistentVolume
		if err := read(&pv); err != nil {
			return nil, err
		}
		return []Answer{volume(from, &pv)}, nil
	case "Pod":
		var pod corev1.Pod
		if err := read(&pod); err != nil {
			return nil, err
		}
		return inlineVolumes(from, &pod), nil
	}
	return []Answer{{From: from, Why: "only StorageClasses, PersistentVolumes and Pods can be translated"}}, nil
}

var translator = lib.New()

// class translates a StorageClass of an in-tree plugin as external-provisioner
// does. csi-translation-lib has no function for the opposite direction, so
// class does not translate the StorageClass of a CSI driver.
func class(from string, sc *storagev1.StorageClass) Answer {
	a := Answer{From: from}
	if !translator.IsMigratableIntreePluginByName(sc.Provisioner) {
		a.Why = whyNot(sc.Provisioner)
		return a
	}
	a.Plugin = sc.Provisioner
	before := maps.Clone(sc.Parameters)
	a.Driver, _ = translator.GetCSINameFromInTreeName(sc.Provisioner) // the plugin is migratable, so there is no error
	now, err := translator.TranslateInTreeStorageClassToCSI(logr.Discard(), sc.Provisioner, sc.DeepCopy())
	if err != nil {
		a.Why = err.Error()
		return a
	}
	now.Provisioner = a.Driver
	a.Object = now
	for _, k := range slices.Sorted(maps.Keys(before)) {
		if !slices.Contains(slices.Collect(maps.Values(now.Parameters)), before[k]) && len(now.AllowedTopologies) == len(sc.AllowedTopologies) {
			a.Notes = append(a.Notes, fmt.Sprintf("parameter %s is dropped, because %s has no equal parameter", k, a.Driver))
		}
	}
	return a
}

func volume(from string, pv *corev1.PersistentVolume) Answer {
	a := Answer{From: from}
	var now *corev1.PersistentVolume
	var err error
	switch {
	case translator.IsPVMigratable(pv):
		if a.Plugin, err = translator.GetInTreePluginNameFromSpec(pv, nil); err == nil {
			now, err = translator.TranslateInTreePVToCSI(logr.Discard(), pv.DeepCopy())
		}
		if err == nil {
			a.Driver = now.Spec.CSI.Driver
		}
	case pv.Spec.CSI != nil && translator.IsMigratedCSIDriverByName(pv.Spec.CSI.Driver):
		a.Driver = pv.Spec.CSI.Driver
		if a.Plugin, err = translator.GetInTreeNameFromCSIName(a.Driver); err == nil {
			now, err = translator.TranslateCSIPVToInTree(pv.DeepCopy())
		}
	case pv.Spec.CSI != nil:
		a.Why = whyNot(pv.Spec.CSI.Driver)
		return a
	default:
		a.Why = "no CSI driver replaces the plugin of this volume, so the PersistentVolume does not change"
		return a
	}
	if err != nil {
		a.Why = err.Error()
		return a
	}
	a.Object = now
	a.Notes = notesOf(pv, now)
	return a
}

// notesOf compares a volume before and after the translation, and lists
// differences that a user may overlook.
func notesOf(before, after *corev1.PersistentVolume) (notes []string) {
	if !slices.Equal(before.Spec.AccessModes, after.Spec.AccessModes) {
		notes = append(notes, fmt.Sprintf("access modes %[1]v become %[2]v, because the in-tree plugin treated a volume with %[1]v like a volume with %[2]v", before.Spec.AccessModes, after.Spec.AccessModes))
	}
	if after.Spec.CSI != nil && strings.Contains(after.Spec.CSI.VolumeHandle, "UNSPECIFIED") {
		notes = append(notes, "parts of the volume handle are UNSPECIFIED: the driver finds their values")
	}
	return notes
}

// inlineVolumes translates the volumes that a pod defines directly, without a claim.
func inlineVolumes(from string, pod *corev1.Pod) (all []Answer) {
	for _, v := range pod.Spec.Volumes {
		if !translator.IsInlineMigratable(&v) {
			continue
		}
		a := Answer{From: from + " volume " + v.Name}
		pv, err := translator.TranslateInTreeInlineVolumeToCSI(logr.Discard(), &v, pod.Namespace)
		if err != nil {
			a.Why = err.Error()
		} else {
			pv.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}
			a.Driver, a.Object = pv.Spec.CSI.Driver, pv
			a.Plugin, _ = translator.GetInTreeNameFromCSIName(a.Driver) // the driver is from the translation, so there is no error
			a.Notes = notesOf(pv, pv)
		}
		all = append(all, a)
	}
	if len(all) == 0 {
		return []Answer{{From: from, Why: "the pod itself defines no volume of an in-tree plugin: translate the PersistentVolumes of its claims"}}
	}
	return all
}

// whyNot returns the reason why Kubernetes does not translate the objects of a provisioner or
// driver.
func whyNot(name string) string {
	switch {
	case translator.IsMigratedCSIDriverByName(name):
		plugin, _ := translator.GetInTreeNameFromCSIName(name) // the driver is known, so there is no error
		return fmt.Sprintf("%s is already a CSI driver: only StorageClasses of the in-tree plugin %s are translated", name, plugin)
	case strings.HasPrefix(name, "kubernetes.io/"):
		return fmt.Sprintf("no CSI driver replaces %s: the plugin was removed from Kubernetes, or it does not provision volumes", name)
	}
	return fmt.Sprintf("%s does not replace an in-tree plugin", name)
}
