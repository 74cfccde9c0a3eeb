//! `kvmctl create`: objects of manifests, and manifests of flags as `virtctl create` writes them.
//!
//! `create vm`, `create instancetype` and `create preference` ask nobody: they print YAML. Their flags, defaults,
//! words and values are `virtctl`'s (v1.7), which tests compare with what it printed.

mod access;
mod cloud_init;
mod csv;
mod exclusive;
mod imports;
mod infer;
mod instancetype;
mod machine;
mod names;
mod params;
mod preference;
mod quantity;
mod vm;
mod volumes;

use serde_json::{Map, Value, json};

use crate::args::{Create, Manifest};
use crate::change;
use crate::failure::Failure;
use crate::output::print_value;
use crate::scope::Scope;

/// `kvmctl create`.
pub async fn run(scope: &Scope, args: &Create) -> Result<(), Failure> {
    let Some(manifest) = &args.manifest else {
        return change::create(scope, args).await;
    };
    if !args.filenames.is_empty() {
        let text = "-f names manifests that are there: leave it out, or what follows create";
        return Err(Failure::Usage(text.to_owned()));
    }
    let namespace = scope.namespace.as_deref();
    let mut object = match manifest {
        Manifest::Vm(args) => vm::manifest(args, namespace)?,
        Manifest::Instancetype(args) => instancetype::manifest(args, namespace)?,
        Manifest::Preference(args) => preference::manifest(args, namespace)?,
    };
    // Members in the order of virtctl, for those who compare.
    object.sort_all_objects();
    print_value(&object, true)
}

/// The metadata of an object. What has no time of creation yet says so, as all that Go writes.
fn metadata(name: &str, namespace: Option<&str>) -> Value {
    let mut metadata = Map::new();
    metadata.insert("creationTimestamp".to_owned(), Value::Null);
    if !name.is_empty() {
        metadata.insert("name".to_owned(), name.into());
    }
    if let Some(namespace) = namespace.filter(|namespace| !namespace.is_empty()) {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    metadata.into()
}

/// An object of the group of instance types.
fn object(kind: &str, metadata: Value, spec: Value) -> Value {
    json!({
        "apiVersion": "instancetype.kubevirt.io/v1beta1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    })
}
