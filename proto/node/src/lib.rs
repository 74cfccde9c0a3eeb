//! The public API: KubeVirt's kinds as protobuf messages, and the JSON form that manifests use.

#![forbid(unsafe_code)]
