//! What the agent and the child that pulls say to each other.

use serde::{Deserialize, Serialize};

use crate::image_defaults::ImageDefaults;

/// The agent's answer when another pull has the file of a blob: ask again.
pub(crate) const BUSY: &str = "another pull fetches the same layer now";

/// What is to be pulled.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// `HOST[:PORT]` of the registry, or of its mirror.
    pub(crate) registry: String,
    /// Path of the repository.
    pub(crate) repository: String,
    /// A tag, or `sha256:HEX`.
    pub(crate) reference: String,
    /// Go's word for the architecture.
    pub(crate) architecture: String,
    /// Plain HTTP.
    pub(crate) is_insecure: bool,
    /// Certificates of authorities, PEM.
    pub(crate) authorities: String,
    /// User and password.
    pub(crate) credentials: Option<(String, String)>,
    pub(crate) max_layers: usize,
    pub(crate) max_layer_bytes: u64,
    /// What has to stay free of the layers' file system.
    pub(crate) reserve_bytes: u64,
    /// How long hosts may take to answer, and to go on with an answer.
    pub(crate) answer_milliseconds: u64,
}

/// A request or a report of the child.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// A TCP connection.
    Connect { host: String, port: u16 },
    /// The file of a blob; what is in it already was fetched before.
    Blob {
        digest: String,
        bytes: u64,
        /// What the blobs that this process fetches meanwhile still lack.
        beside: u64,
    },
    /// Whether the image of this manifest is wanted. The agent ends this process when it has its disk.
    Manifest { digest: String },
    /// So much of the layers is there.
    Progress { bytes: u64, of: u64 },
    /// All is there: digest and media type of the manifest, and its size; what the configuration says of machines.
    Done {
        digest: String,
        media_type: String,
        bytes: u64,
        defaults: ImageDefaults,
    },
    /// It cannot be done.
    Refused {
        message: String,
        /// The registry answered 401 or 403.
        is_denied: bool,
    },
}
