//! What a node shows a control plane, and by whom it believes it.

use std::io;
use std::path::{Path, PathBuf};

use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// Files of a node that dials with TLS, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialFiles {
    /// The node's certificate, followed by those between it and a root.
    pub certificate: PathBuf,
    /// Private key of `certificate`, in PEM.
    pub key: PathBuf,
    /// Certificates of who signs that of the control plane.
    pub ca: PathBuf,
}

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be read", path.display())]
pub(super) struct UnreadableFile {
    path: PathBuf,
    source: io::Error,
}

impl CredentialFiles {
    /// Reads them.
    ///
    /// # Errors
    /// [`UnreadableFile`]. What is wrong with their content is found when it is used.
    pub(super) fn read(&self) -> Result<ClientTlsConfig, UnreadableFile> {
        let identity = Identity::from_pem(read(&self.certificate)?, read(&self.key)?);
        Ok(ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(read(&self.ca)?))
            .identity(identity))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, UnreadableFile> {
    std::fs::read(path).map_err(|source| UnreadableFile {
        path: path.to_owned(),
        source,
    })
}
