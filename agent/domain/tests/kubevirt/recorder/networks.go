// What KubeVirt's validation of networks (pkg/network/admitter) says of VMIs: a VMI on each line of the input, and on each
// line of the output the VMI with its causes.
//
//	networks < vmis.jsonl > networks.jsonl
//
// README.md says how it is built.
package main

import (
	"bufio"
	"encoding/json"
	"os"

	k8sfield "k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"kubevirt.io/kubevirt/pkg/network/admitter"
)

// A cluster with every feature of networks.
type everything struct{}

func (everything) IsBridgeInterfaceOnPodNetworkEnabled() bool { return true }
func (everything) PasstBindingEnabled() bool                  { return true }
func (everything) NetworkDevicesWithDRAGateEnabled() bool     { return true }
func (everything) PortRangesSpecGateEnabled() bool            { return true }

type cause struct {
	Type    string `json:"type"`
	Field   string `json:"field"`
	Message string `json:"message"`
}

type line struct {
	Object json.RawMessage `json:"object"`
	Causes []cause         `json:"causes"`
}

func main() {
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 1<<20)
	output := json.NewEncoder(os.Stdout)
	for input.Scan() {
		var read line
		var vmi v1.VirtualMachineInstance
		if err := json.Unmarshal(input.Bytes(), &read); err != nil {
			panic(err)
		}
		if err := json.Unmarshal(read.Object, &vmi); err != nil {
			panic(err)
		}
		read.Causes = []cause{}
		for _, it := range admitter.Validate(k8sfield.NewPath("spec"), &vmi.Spec, everything{}) {
			read.Causes = append(read.Causes, cause{string(it.Type), it.Field, it.Message})
		}
		if err := output.Encode(read); err != nil {
			panic(err)
		}
	}
}
