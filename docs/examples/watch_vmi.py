#!/usr/bin/env python3
"""Creates a VMI once, whatever happens on the way, and tells its phases until it has ended.

usage: watch_vmi.py SOCKET NAME IMAGE KERNEL_PATH KERNEL_ARGUMENTS
"""
import sys
import time
import uuid

import grpc
from kubevirt.v1 import virtualmachineinstance_pb2 as kubevirt
from kvmlet.node.v1 import service_pb2 as api
from kvmlet.node.v1 import service_pb2_grpc as service

ENDED = ("Succeeded", "Failed")


def apply(node, wish):
    """The idempotency key makes it safe to ask again."""
    while True:
        try:
            return node.Apply(wish, timeout=10).object.virtual_machine_instance.metadata
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE:
                raise
            time.sleep(0.2)


def main(socket, name, image, kernel, arguments):
    node = service.NodeServiceStub(grpc.insecure_channel(f"unix:{socket}"))
    vmi = kubevirt.VirtualMachineInstance(api_version="kubevirt.io/v1", kind="VirtualMachineInstance")
    vmi.metadata.name = name
    vmi.spec.domain.memory.guest = "16Mi"
    boot = vmi.spec.domain.firmware.kernel_boot
    boot.kernel_args, boot.container.image, boot.container.kernel_path = arguments, image, kernel
    vmi.spec.domain.devices.SetInParent()
    wish = api.ApplyRequest(object=api.Object(virtual_machine_instance=vmi), idempotency_key=str(uuid.uuid4()))
    made = apply(node, wish)
    print("created", made.uid, flush=True)
    assert apply(node, wish).uid == made.uid, "it was made twice"
    version, phase = made.resource_version, ""
    while phase not in ENDED:
        try:
            for change in node.Watch(api.WatchRequest(kind="VirtualMachineInstance", resource_version=version)):
                version, vmi = change.resource_version, change.object.virtual_machine_instance
                if vmi.metadata.uid == made.uid and vmi.status.phase != phase:
                    phase = vmi.status.phase
                    print(phase, flush=True)
                    if phase in ENDED:
                        break
        except grpc.RpcError as error:
            print("lost the agent, resuming from", version, error.code().name, file=sys.stderr, flush=True)
            time.sleep(0.2)


main(*sys.argv[1:])
