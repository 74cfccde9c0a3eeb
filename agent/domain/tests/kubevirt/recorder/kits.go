package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	jsonpatch "github.com/evanphx/json-patch"
	"go.uber.org/mock/gomock"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8sfake "k8s.io/client-go/kubernetes/fake"

	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	cdifake "kubevirt.io/client-go/containerizeddataimporter/fake"
	"kubevirt.io/client-go/kubecli"
	"kubevirt.io/client-go/kubevirt/fake"

	kitadmitters "kubevirt.io/kubevirt/pkg/instancetype/preference/webhooks"
	typeadmitters "kubevirt.io/kubevirt/pkg/instancetype/webhooks"
	kitwebhooks "kubevirt.io/kubevirt/pkg/instancetype/webhooks/vm"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks/mutating-webhook/mutators"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks/validating-webhook/admitters"
	virtconfig "kubevirt.io/kubevirt/pkg/virt-config"
)

// A line of the recording of kits: a machine, the one that it takes the place of, and the instance types and preferences
// that are there.
type kitted struct {
	Machine json.RawMessage   `json:"machine"`
	Before  json.RawMessage   `json:"before,omitempty"`
	Objects []json.RawMessage `json:"objects"`
	Causes  []cause           `json:"causes"`
	Error   string            `json:"error,omitempty"`
	// What is stored of a machine that is taken.
	Stored json.RawMessage `json:"stored,omitempty"`
	// What the webhooks of the objects say of them, in order.
	OfObjects [][]cause `json:"ofObjects"`
}

type panics struct{}

func (panics) Errorf(format string, values ...any) { panic(fmt.Sprintf(format, values...)) }
func (panics) Fatalf(format string, values ...any) { panic(fmt.Sprintf(format, values...)) }

// A client of a cluster with these objects.
func client(objects []json.RawMessage) kubecli.KubevirtClient {
	var known []runtime.Object
	for _, text := range objects {
		known = append(known, decoded(text))
	}
	// As the API server does it, each gets to its own kind.
	kubevirt := fake.NewSimpleClientset(known...).InstancetypeV1beta1()
	it := kubecli.NewMockKubevirtClient(gomock.NewController(panics{}))
	it.EXPECT().CoreV1().Return(k8sfake.NewSimpleClientset().CoreV1()).AnyTimes()
	it.EXPECT().AppsV1().Return(k8sfake.NewSimpleClientset().AppsV1()).AnyTimes()
	it.EXPECT().CdiClient().Return(cdifake.NewSimpleClientset()).AnyTimes()
	it.EXPECT().VirtualMachineInstancetype(gomock.Any()).Return(kubevirt.VirtualMachineInstancetypes("default")).AnyTimes()
	it.EXPECT().VirtualMachineClusterInstancetype().Return(kubevirt.VirtualMachineClusterInstancetypes()).AnyTimes()
	it.EXPECT().VirtualMachinePreference(gomock.Any()).Return(kubevirt.VirtualMachinePreferences("default")).AnyTimes()
	it.EXPECT().VirtualMachineClusterPreference().Return(kubevirt.VirtualMachineClusterPreferences()).AnyTimes()
	return it
}

func decoded(text json.RawMessage) runtime.Object {
	var head metav1.TypeMeta
	must(0, json.Unmarshal(text, &head))
	var object runtime.Object
	switch head.Kind {
	case "VirtualMachineInstancetype":
		object = &v1beta1.VirtualMachineInstancetype{}
	case "VirtualMachineClusterInstancetype":
		object = &v1beta1.VirtualMachineClusterInstancetype{}
	case "VirtualMachinePreference":
		object = &v1beta1.VirtualMachinePreference{}
	case "VirtualMachineClusterPreference":
		object = &v1beta1.VirtualMachineClusterPreference{}
	default:
		fmt.Fprintln(os.Stderr, "recorder: no kit is a", head.Kind)
		os.Exit(1)
	}
	must(0, json.Unmarshal(text, object))
	return object
}

// What the webhook of an instance type or a preference says of it.
func admitObject(text json.RawMessage) []cause {
	resource := metav1.GroupVersionResource{Group: "instancetype.kubevirt.io", Version: "v1beta1"}
	ctx := context.Background()
	var response *admissionv1.AdmissionResponse
	switch decoded(text).(type) {
	case *v1beta1.VirtualMachineInstancetype:
		resource.Resource = "virtualmachineinstancetypes"
		response = (&typeadmitters.InstancetypeAdmitter{}).Admit(ctx, review(resource, text))
	case *v1beta1.VirtualMachineClusterInstancetype:
		resource.Resource = "virtualmachineclusterinstancetypes"
		response = (&typeadmitters.ClusterInstancetypeAdmitter{}).Admit(ctx, review(resource, text))
	case *v1beta1.VirtualMachinePreference:
		resource.Resource = "virtualmachinepreferences"
		response = (&kitadmitters.PreferenceAdmitter{}).Admit(ctx, review(resource, text))
	default:
		resource.Resource = "virtualmachineclusterpreferences"
		response = (&kitadmitters.ClusterPreferenceAdmitter{}).Admit(ctx, review(resource, text))
	}
	causes, sentence := refusal(response)
	if sentence != "" {
		causes = append(causes, cause{"", sentence})
	}
	return causes
}

// What stands in the place of an answer where a webhook of KubeVirt's panics.
const panicked = "a webhook panicked"

// A machine goes through both webhooks, as in a cluster: the first stores what the second judges.
func answerKits(line []byte, config *virtconfig.ClusterConfig) (it kitted) {
	defer func() {
		if recover() != nil {
			it.Error = panicked
		}
	}()
	must(0, json.Unmarshal(line, &it))
	it.OfObjects = [][]cause{}
	for _, object := range it.Objects {
		it.OfObjects = append(it.OfObjects, admitObject(object))
	}
	it.Causes, it.Error, it.Stored = []cause{}, "", nil
	resource := metav1.GroupVersionResource(webhooks.VirtualMachineGroupVersionResource)
	asked := review(resource, it.Machine)
	if it.Before != nil {
		asked.Request.Operation = admissionv1.Update
		asked.Request.OldObject = runtime.RawExtension{Raw: it.Before}
	}
	known := client(it.Objects)
	mutated := mutators.NewVMsMutator(config, known).Mutate(asked)
	if !mutated.Allowed {
		it.Causes, it.Error = refusal(mutated)
		return it
	}
	patch := must(jsonpatch.DecodePatch(mutated.Patch))
	asked.Request.Object.Raw = must(patch.Apply(it.Machine))
	admitter := &admitters.VMsAdmitter{
		VirtClient: known, ClusterConfig: config, InstancetypeAdmitter: kitwebhooks.NewAdmitter(known),
	}
	it.Causes, it.Error = refusal(admitter.Admit(context.Background(), asked))
	if len(it.Causes) == 0 && it.Error == "" {
		it.Stored = stored(asked.Request.Object.Raw)
	}
	return it
}

// The spec that is stored, without what is drawn at random.
func stored(object []byte) json.RawMessage {
	vm := &v1.VirtualMachine{}
	must(0, json.Unmarshal(object, vm))
	if template := vm.Spec.Template; template != nil && template.Spec.Domain.Firmware != nil {
		template.Spec.Domain.Firmware.UUID, template.Spec.Domain.Firmware.Serial = "", ""
	}
	return must(json.Marshal(vm.Spec))
}
