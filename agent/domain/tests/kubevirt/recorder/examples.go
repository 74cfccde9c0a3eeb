package main

import (
	"encoding/json"
	"strings"

	virtconfig "kubevirt.io/kubevirt/pkg/virt-config"
)

// A line of the recording of manifests that are no part of the repository: which object, whether a cluster refuses it, and
// at which fields.
type exampleLine struct {
	File    string          `json:"file"`
	Index   int             `json:"index"`
	Object  json.RawMessage `json:"object,omitempty"`
	Refused bool            `json:"refused"`
	Paths   []string        `json:"paths,omitempty"`
	// Written by hand: why the answer of this project is another, and why it names other fields.
	Otherwise string `json:"otherwise,omitempty"`
	Later     string `json:"later,omitempty"`
}

func examples(config *virtconfig.ClusterConfig) func([]byte) any {
	ask := served(config)
	return func(line []byte) any {
		var it exampleLine
		must(0, json.Unmarshal(line, &it))
		said := ask(must(json.Marshal(servedLine{Object: it.Object}))).(servedLine)
		it.Object = nil
		it.Refused = said.NoMatch || said.Error != ""
		it.Paths = said.Unknown
		for _, text := range said.Form {
			field, _, _ := strings.Cut(text, ": ")
			it.Paths = append(it.Paths, field)
		}
		for _, cause := range said.Causes {
			it.Paths = append(it.Paths, cause.Field)
		}
		it.Refused = it.Refused || len(it.Paths) > 0
		return it
	}
}
