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
mod manifest;
mod params;
mod preference;
mod quantity;
mod vm;
mod volumes;

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
