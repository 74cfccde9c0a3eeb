//! The manifest directory: what lies in it, runs.
//!
//! As with a kubelet's static pods: a file added makes its VMIs, a file removed ends them, a changed
//! spec ends the VMI and makes it anew. Objects made from here carry the file's name and a digest of what it
//! said. Objects without a guest, such as Secrets and sets, are applied and deleted with their file. Three rules keep mistakes small:
//!
//! * a file that cannot be read or parsed, or is empty, keeps the state that it had when it last could;
//! * nothing is deleted while the directory itself cannot be read;
//! * an object that came from elsewhere is never touched.

mod directory;
mod others;
mod reconcile;
mod source;
mod swept;

pub use reconcile::DIGEST_ANNOTATION;
pub use source::ManifestSource;
