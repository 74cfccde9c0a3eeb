// Recorder asks KubeVirt's own code what the tests compare this project with. It reads a recording and writes it again
// with fresh answers:
//
//	recorder admission GATE... < recorded.jsonl          objects and what KubeVirt's webhooks say of them
//	recorder served GATE... < served.jsonl               objects, and what an API server and KubeVirt's webhooks say of them
//	recorder examples GATE... < objects.jsonl            the same of manifests elsewhere: whether they are refused, and at which fields
//	recorder kits GATE... < kits.jsonl                   machines beside instance types and preferences, likewise
//	recorder pairs RELEASE COMMON.json MACHINES.json GATE... < pairs.jsonl   machines of each instance type and preference
//
// README.md says how it is built.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8sfield "k8s.io/apimachinery/pkg/util/validation/field"

	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"

	"kubevirt.io/kubevirt/pkg/instancetype/apply"
	"kubevirt.io/kubevirt/pkg/instancetype/conflict"
	"kubevirt.io/kubevirt/pkg/instancetype/expand"
	"kubevirt.io/kubevirt/pkg/instancetype/preference/requirements"
	"kubevirt.io/kubevirt/pkg/instancetype/preference/validation"
	"kubevirt.io/kubevirt/pkg/testutils"
	webhookutils "kubevirt.io/kubevirt/pkg/util/webhooks"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks/mutating-webhook/mutators"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks/validating-webhook/admitters"
	virtconfig "kubevirt.io/kubevirt/pkg/virt-config"
)

type cause struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// A line of the recording of admission.
type admitted struct {
	Object json.RawMessage `json:"object"`
	Causes []cause         `json:"causes"`
	Error  string          `json:"error,omitempty"`
}

// A line of the recording of pairs; "-" is nothing.
type pair struct {
	Release      string          `json:"release"`
	Instancetype string          `json:"instancetype"`
	Preference   string          `json:"preference"`
	Base         string          `json:"base"`
	Expanded     json.RawMessage `json:"expanded"`
	Causes       []cause         `json:"causes"`
}

// What a machine names, in place of a cluster's objects.
type kit struct {
	instancetype *v1beta1.VirtualMachineInstancetypeSpec
	preference   *v1beta1.VirtualMachinePreferenceSpec
}

func (k kit) Find(*v1.VirtualMachine) (*v1beta1.VirtualMachineInstancetypeSpec, error) {
	return k.instancetype, nil
}

func (k kit) FindPreference(*v1.VirtualMachine) (*v1beta1.VirtualMachinePreferenceSpec, error) {
	return k.preference, nil
}

func (k kit) ApplyToVM(vm *v1.VirtualMachine) (*v1beta1.VirtualMachineInstancetypeSpec, *v1beta1.VirtualMachinePreferenceSpec, []metav1.StatusCause) {
	if k.instancetype == nil && k.preference == nil {
		return nil, nil, nil
	}
	if spread := validation.CheckSpreadCPUTopology(k.instancetype, k.preference); spread != nil {
		return nil, nil, spread.StatusCauses()
	}
	path := k8sfield.NewPath("spec", "template", "spec")
	template := vm.Spec.Template
	conflicts := apply.NewVMIApplier().ApplyToVMI(path, k.instancetype, k.preference, &template.Spec, &template.ObjectMeta)
	if len(conflicts) > 0 {
		return nil, nil, conflicts.StatusCauses()
	}
	return k.instancetype, k.preference, nil
}

func (k kit) Check(instancetype *v1beta1.VirtualMachineInstancetypeSpec, preference *v1beta1.VirtualMachinePreferenceSpec, spec *v1.VirtualMachineInstanceSpec) (conflict.Conflicts, error) {
	return requirements.New().Check(instancetype, preference, spec)
}

func cluster(gates []string) *virtconfig.ClusterConfig {
	config, _, _ := testutils.NewFakeClusterConfigUsingKVConfig(&v1.KubeVirtConfiguration{
		DeveloperConfiguration: &v1.DeveloperConfiguration{FeatureGates: gates},
		NetworkConfiguration:   &v1.NetworkConfiguration{NetworkInterface: "masquerade"},
	})
	return config
}

// The causes of an answer, or its only sentence.
func refusal(response *admissionv1.AdmissionResponse) ([]cause, string) {
	causes := []cause{}
	if response == nil || response.Allowed || response.Result == nil {
		return causes, ""
	}
	if response.Result.Details == nil || len(response.Result.Details.Causes) == 0 {
		return causes, response.Result.Message
	}
	for _, it := range response.Result.Details.Causes {
		causes = append(causes, cause{it.Field, it.Message})
	}
	return causes, ""
}

func review(resource metav1.GroupVersionResource, object []byte) *admissionv1.AdmissionReview {
	return &admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create,
		Resource:  resource,
		Object:    runtime.RawExtension{Raw: object},
		Namespace: "default",
	}}
}

func admitVM(config *virtconfig.ClusterConfig, k kit, object []byte) ([]cause, string) {
	resource := metav1.GroupVersionResource(webhooks.VirtualMachineGroupVersionResource)
	admitter := &admitters.VMsAdmitter{ClusterConfig: config, InstancetypeAdmitter: k}
	return refusal(admitter.Admit(context.Background(), review(resource, object)))
}

func admitVMI(config *virtconfig.ClusterConfig, object []byte) ([]cause, string) {
	if response := webhookutils.ValidateSchema(v1.VirtualMachineInstanceGroupVersionKind, object); response != nil {
		return refusal(response)
	}
	vmi := &v1.VirtualMachineInstance{}
	if err := json.Unmarshal(object, vmi); err != nil {
		return []cause{}, err.Error()
	}
	if err := mutators.ApplyNewVMIMutations(vmi, config); err != nil {
		return []cause{}, err.Error()
	}
	resource := metav1.GroupVersionResource(webhooks.VirtualMachineInstanceGroupVersionResource)
	admitter := &admitters.VMICreateAdmitter{ClusterConfig: config}
	return refusal(admitter.Admit(context.Background(), review(resource, must(json.Marshal(vmi)))))
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, "recorder:", err)
		os.Exit(1)
	}
	return value
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "recorder admission|served|examples|kits GATE... | recorder pairs RELEASE COMMON.json MACHINES.json GATE...")
		os.Exit(2)
	}
	answer := func(line []byte) any { return answerAdmission(line, cluster(os.Args[2:])) }
	switch os.Args[1] {
	case "pairs":
		answer = pairs(os.Args[2], os.Args[3], os.Args[4], cluster(os.Args[5:]))
	case "kits":
		answer = func(line []byte) any { return answerKits(line, cluster(os.Args[2:])) }
	case "served":
		answer = served(cluster(os.Args[2:]))
	case "examples":
		answer = examples(cluster(os.Args[2:]))
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 16<<20)
	out := bufio.NewWriter(os.Stdout)
	for lines.Scan() {
		fmt.Fprintf(out, "%s\n", must(json.Marshal(answer(lines.Bytes()))))
	}
	must(0, lines.Err())
	must(0, out.Flush())
}

func answerAdmission(line []byte, config *virtconfig.ClusterConfig) any {
	var it admitted
	must(0, json.Unmarshal(line, &it))
	var head metav1.TypeMeta
	must(0, json.Unmarshal(it.Object, &head))
	if head.Kind == "VirtualMachine" {
		it.Causes, it.Error = admitVM(config, kit{}, it.Object)
	} else {
		it.Causes, it.Error = admitVMI(config, it.Object)
	}
	return it
}

// Answers for one release of common instance types at a time: lines of others stay as they are.
func pairs(release, common, machines string, config *virtconfig.ClusterConfig) func([]byte) any {
	var objects []struct {
		Kind     string            `json:"kind"`
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     json.RawMessage   `json:"spec"`
	}
	must(0, json.Unmarshal(must(os.ReadFile(common)), &objects))
	bases := map[string]v1.VirtualMachineSpec{}
	must(0, json.Unmarshal(must(os.ReadFile(machines)), &bases))
	instancetypes := map[string]*v1beta1.VirtualMachineInstancetypeSpec{}
	preferences := map[string]*v1beta1.VirtualMachinePreferenceSpec{}
	for _, object := range objects {
		if object.Kind == "VirtualMachineClusterInstancetype" {
			spec := &v1beta1.VirtualMachineInstancetypeSpec{}
			must(0, json.Unmarshal(object.Spec, spec))
			instancetypes[object.Metadata.Name] = spec
		} else {
			spec := &v1beta1.VirtualMachinePreferenceSpec{}
			must(0, json.Unmarshal(object.Spec, spec))
			preferences[object.Metadata.Name] = spec
		}
	}
	return func(line []byte) any {
		var it pair
		must(0, json.Unmarshal(line, &it))
		if it.Release != release {
			return it
		}
		k := kit{instancetypes[it.Instancetype], preferences[it.Preference]}
		vm := machine(it, bases[it.Base])
		it.Causes, _ = admitVM(config, k, must(json.Marshal(vm)))
		it.Expanded = must(json.Marshal(must(expand.New(config, k, k).Expand(vm))))
		return it
	}
}

// The machine that the test makes of the same line.
func machine(it pair, base v1.VirtualMachineSpec) *v1.VirtualMachine {
	vm := &v1.VirtualMachine{Spec: *base.DeepCopy()}
	vm.APIVersion, vm.Kind, vm.Name, vm.Namespace = "kubevirt.io/v1", "VirtualMachine", "dev", "default"
	if it.Instancetype == "-" {
		must(0, json.Unmarshal([]byte(`{"guest": "3Gi"}`), &vm.Spec.Template.Spec.Domain.Memory))
	} else {
		vm.Spec.Instancetype = &v1.InstancetypeMatcher{Name: it.Instancetype}
	}
	if it.Preference != "-" {
		vm.Spec.Preference = &v1.PreferenceMatcher{Name: it.Preference}
	}
	return vm
}
