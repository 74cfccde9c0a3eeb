package main

import (
	"context"
	"encoding/json"
	"sort"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8sfield "k8s.io/apimachinery/pkg/util/validation/field"

	virtconfig "kubevirt.io/kubevirt/pkg/virt-config"
	"sigs.k8s.io/yaml"

	"kubevirt.io/kubevirt/pkg/virt-api/webhooks"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks/validating-webhook/admitters"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
)

// A line of the recording of what a cluster says of an object, from the first look at its kind on. Each step is reached
// only when those before it refuse nothing.
type servedLine struct {
	Object json.RawMessage `json:"object"`
	// No cluster with KubeVirt has the kind in this version.
	NoMatch bool `json:"noMatch,omitempty"`
	// Fields that strict validation refuses.
	Unknown []string `json:"unknown,omitempty"`
	// What the API server says of metadata and of the form.
	Form []string `json:"form,omitempty"`
	// What KubeVirt's webhooks say.
	Causes []cause `json:"causes,omitempty"`
	Error  string  `json:"error,omitempty"`
}

type servedKind struct {
	isNamespaced bool
	structural   *structural.Structural
	validator    validation.SchemaValidator
}

// The kinds of KubeVirt's CRDs, in the versions that are served.
func servedKinds() map[schema.GroupVersionKind]servedKind {
	kinds := map[schema.GroupVersionKind]servedKind{}
	for _, make := range []func() (*extv1.CustomResourceDefinition, error){
		components.NewVirtualMachineCrd,
		components.NewVirtualMachineInstanceCrd,
		components.NewPresetCrd,
		components.NewReplicaSetCrd,
		components.NewVirtualMachineInstancetypeCrd,
		components.NewVirtualMachineClusterInstancetypeCrd,
		components.NewVirtualMachinePreferenceCrd,
		components.NewVirtualMachineClusterPreferenceCrd,
		components.NewVirtualMachineInstanceMigrationCrd,
		components.NewVirtualMachinePoolCrd,
		components.NewVirtualMachineSnapshotCrd,
		components.NewVirtualMachineSnapshotContentCrd,
		components.NewVirtualMachineRestoreCrd,
		components.NewVirtualMachineExportCrd,
		components.NewMigrationPolicyCrd,
		components.NewVirtualMachineCloneCrd,
		components.NewKubeVirtCrd,
	} {
		crd := must(make())
		for _, version := range crd.Spec.Versions {
			if !version.Served {
				continue
			}
			served := newServedKind(version.Schema.OpenAPIV3Schema, crd.Spec.Scope == extv1.NamespaceScoped)
			kind := schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}
			kinds[kind] = served
		}
	}
	// KubeVirt's copy of CDI's form.
	var volume extv1.CustomResourceValidation
	must(0, yaml.Unmarshal([]byte(components.CRDsValidation["datavolumetemplatespec"]), &volume))
	kinds[schema.GroupVersionKind{Group: "cdi.kubevirt.io", Version: "v1beta1", Kind: "DataVolume"}] =
		newServedKind(volume.OpenAPIV3Schema, true)
	return kinds
}

func newServedKind(schema *extv1.JSONSchemaProps, isNamespaced bool) servedKind {
	form := &apiextensions.JSONSchemaProps{}
	must(0, extv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, form, nil))
	validator, _, err := validation.NewSchemaValidator(form)
	must(0, err)
	return servedKind{isNamespaced, must(structural.NewStructural(form)), validator}
}

func served(config *virtconfig.ClusterConfig) func([]byte) any {
	kinds := servedKinds()
	return func(line []byte) any {
		var it servedLine
		must(0, json.Unmarshal(line, &it))
		it = servedLine{Object: it.Object}
		var head struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
		}
		must(0, json.Unmarshal(it.Object, &head))
		kind, ok := kinds[schema.FromAPIVersionAndKind(head.APIVersion, head.Kind)]
		if !ok {
			it.NoMatch = true
			return it
		}
		var object map[string]any
		must(0, json.Unmarshal(it.Object, &object))
		options := structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
		it.Unknown = pruning.PruneWithOptions(object, kind.structural, true, options)
		if len(it.Unknown) > 0 {
			sort.Strings(it.Unknown)
			return it
		}
		defaulting.Default(object, kind.structural)
		it.Form = form(object, head.ObjectMeta, kind)
		if len(it.Form) > 0 {
			return it
		}
		switch head.Kind {
		case "VirtualMachine":
			it.Causes, it.Error = admitVM(config, kit{}, it.Object)
		case "VirtualMachineInstance":
			it.Causes, it.Error = admitVMI(config, it.Object)
		case "VirtualMachineInstancePreset":
			resource := metav1.GroupVersionResource(webhooks.VirtualMachineInstancePresetGroupVersionResource)
			asked := review(resource, it.Object)
			it.Causes, it.Error = refusal((&admitters.VMIPresetAdmitter{}).Admit(context.Background(), asked))
		default:
			it.Causes, it.Error = admitOther(config, head.Kind, it.Object)
		}
		return it
	}
}

func form(object map[string]any, metadata metav1.ObjectMeta, kind servedKind) []string {
	var texts []string
	say := func(errors k8sfield.ErrorList) {
		for _, err := range errors {
			texts = append(texts, err.Error())
		}
	}
	if metadata.Name == "" && metadata.GenerateName == "" {
		// The API server does not validate an object any further then.
		err := k8sfield.Required(k8sfield.NewPath("metadata", "name"), "name or generateName is required")
		return []string{err.Error()}
	}
	if metadata.Name == "" {
		metadata.Name = metadata.GenerateName + "x"
	}
	if metadata.Namespace == "" && kind.isNamespaced {
		metadata.Namespace = "default"
	}
	say(apivalidation.ValidateObjectMeta(&metadata, kind.isNamespaced, apivalidation.NameIsDNSSubdomain, k8sfield.NewPath("metadata")))
	say(validation.ValidateCustomResource(nil, object, kind.validator))
	sort.Strings(texts)
	return texts
}
