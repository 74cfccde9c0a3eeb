package main

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	k8sfield "k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"

	v1 "kubevirt.io/api/core/v1"
	poolv1 "kubevirt.io/api/pool/v1beta1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	"kubevirt.io/client-go/kubecli"
	snapshotclient "kubevirt.io/client-go/kubevirt/typed/snapshot/v1beta1"

	storage "kubevirt.io/kubevirt/pkg/storage/admitters"
	webhookutils "kubevirt.io/kubevirt/pkg/util/webhooks"
	"kubevirt.io/kubevirt/pkg/virt-api/webhooks/validating-webhook/admitters"
	virtconfig "kubevirt.io/kubevirt/pkg/virt-config"
)

// What the webhooks of kinds say whose objects act on a machine.
func admitOther(config *virtconfig.ClusterConfig, kind string, object []byte) ([]cause, string) {
	of := func(group, plural string) metav1.GroupVersionResource {
		return metav1.GroupVersionResource{Group: group, Version: "v1beta1", Resource: plural}
	}
	ctx := context.Background()
	switch kind {
	case "VirtualMachineInstanceMigration":
		var migration v1.VirtualMachineInstanceMigration
		must(0, json.Unmarshal(object, &migration))
		causes := admitters.ValidateVirtualMachineInstanceMigrationSpec(k8sfield.NewPath("spec"), &migration.Spec)
		return refusal(webhookutils.ToAdmissionResponse(causes))
	case "VirtualMachinePool":
		var pool poolv1.VirtualMachinePool
		must(0, json.Unmarshal(object, &pool))
		asked := review(of("pool.kubevirt.io", "virtualmachinepools"), object)
		causes := admitters.ValidateVMPoolSpec(asked, k8sfield.NewPath("spec"), &pool, config, false)
		return refusal(webhookutils.ToAdmissionResponse(causes))
	case "VirtualMachineSnapshot":
		asked := review(of("snapshot.kubevirt.io", "virtualmachinesnapshots"), object)
		return refusal(storage.NewVMSnapshotAdmitter(config, nil).Admit(ctx, asked))
	case "VirtualMachineRestore":
		asked := review(of("snapshot.kubevirt.io", "virtualmachinerestores"), object)
		byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		none := cache.NewSharedIndexInformer(nil, &snapshotv1.VirtualMachineRestore{}, 0, byNamespace)
		return refusal(storage.NewVMRestoreAdmitter(config, withSnapshot{}, none).Admit(ctx, asked))
	case "VirtualMachineExport":
		asked := review(of("export.kubevirt.io", "virtualmachineexports"), object)
		return refusal(storage.NewVMExportAdmitter(config).Admit(ctx, asked))
	case "VirtualMachineClone":
		asked := review(of("clone.kubevirt.io", "virtualmachineclones"), object)
		return refusal(admitters.NewVMCloneAdmitter(config, nil).Admit(ctx, asked))
	case "MigrationPolicy":
		asked := review(of("migrations.kubevirt.io", "migrationpolicies"), object)
		return refusal(admitters.NewMigrationPolicyAdmitter().Admit(ctx, asked))
	}
	return nil, ""
}

// A cluster that has every snapshot that is asked for, of the machine that is asked for.
type withSnapshot struct{ kubecli.KubevirtClient }

type snapshots struct {
	snapshotclient.VirtualMachineSnapshotInterface
}

type machines struct {
	kubecli.VirtualMachineInterface
}

var uid = types.UID("of the machine")

func (withSnapshot) VirtualMachineSnapshot(string) snapshotclient.VirtualMachineSnapshotInterface {
	return snapshots{}
}

func (withSnapshot) VirtualMachine(string) kubecli.VirtualMachineInterface {
	return machines{}
}

func (snapshots) Get(context.Context, string, metav1.GetOptions) (*snapshotv1.VirtualMachineSnapshot, error) {
	return &snapshotv1.VirtualMachineSnapshot{Status: &snapshotv1.VirtualMachineSnapshotStatus{SourceUID: &uid}}, nil
}

func (machines) Get(context.Context, string, metav1.GetOptions) (*v1.VirtualMachine, error) {
	return &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{UID: uid}}, nil
}
