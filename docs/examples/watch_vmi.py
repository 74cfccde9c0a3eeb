#!/usr/bin/env python3
"""Creates a VMI once and tells its phases until it has ended. usage: watch_vmi.py SOCKET NAME IMAGE KERNEL ARGUMENTS"""
import sys
import time
import uuid

import grpc
from google.protobuf import json_format
from kvmlet.node.v1 import service_pb2 as api
from kvmlet.node.v1 import service_pb2_grpc as service


def main(socket, name, image, kernel, arguments):
    node = service.NodeServiceStub(grpc.insecure_channel(f"unix:{socket}"))
    boot = {"kernelArgs": arguments, "container": {"image": image, "kernelPath": kernel}}
    domain = {"memory": {"guest": "16Mi"}, "firmware": {"kernelBoot": boot}, "devices": {}}
    vmi = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": name}}
    request = api.ApplyRequest(idempotency_key=str(uuid.uuid4()))  # which makes it safe to ask again
    json_format.ParseDict({**vmi, "spec": {"domain": domain}}, request.object.virtual_machine_instance)
    node.Apply(request, wait_for_ready=True, timeout=30)
    made = node.Apply(request, wait_for_ready=True, timeout=30).object.virtual_machine_instance.metadata
    print("created", made.uid, flush=True)
    version, phase = made.resource_version, ""
    while phase not in ("Succeeded", "Failed"):
        try:
            for change in node.Watch(api.WatchRequest(kind="VirtualMachineInstance", resource_version=version)):
                version, vmi = change.resource_version, change.object.virtual_machine_instance
                if vmi.metadata.uid == made.uid and vmi.status.phase != phase:
                    phase = vmi.status.phase
                    print(phase, flush=True)
                if phase in ("Succeeded", "Failed"):
                    break
        except grpc.RpcError as error:
            print("lost the agent, resuming from", version, error.code().name, file=sys.stderr, flush=True)
            time.sleep(0.2)


main(*sys.argv[1:])
