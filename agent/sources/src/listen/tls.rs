//! TCP with TLS 1.3, where both sides show a certificate.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

/// The files of the agent's side, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The agent's certificate, followed by those between it and a root.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Certificates of who signs those of clients.
    pub client_ca: PathBuf,
}

/// Why TLS can not be spoken.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can not be read, or is no PEM.
    #[error("{} can not be read as PEM ({what})", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// Why not.
        source: pem::Error,
    },
    /// A file holds nothing of what it should.
    #[error("{} holds no {what}", path.display())]
    Empty {
        /// Which.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// The authority of clients can not be used.
    #[error("{} can not be used as the authority of clients", path.display())]
    Authority {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: rustls::server::VerifierBuilderError,
    },
    /// Certificate and key do not do.
    #[error("the certificate {} with the key {} can not be used", certificate.display(), key.display())]
    Pair {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// Why not.
        source: rustls::Error,
    },
    /// Nothing can listen there.
    #[error("{address} can not be listened on")]
    Address {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
}

/// What the agent shows and whom it believes. Cheap to clone; connections that come after a change see it.
#[derive(Clone, Debug)]
pub struct TlsKeys(Arc<RwLock<Arc<ServerConfig>>>);

impl TlsKeys {
    /// Reads the files.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(RwLock::new(Arc::new(config(files)?)))))
    }

    /// Reads the files again. What can not be used changes nothing.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn reload(&self, files: &TlsFiles) -> Result<(), TlsError> {
        let next = Arc::new(config(files)?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let present = self.0.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&present))
    }
}

/// A TCP port where clients with certificates are served.
#[derive(Debug)]
pub struct TlsDoor {
    pub(super) listener: TcpListener,
    pub(super) keys: TlsKeys,
    /// Connections that one client may have.
    pub(super) most_each: usize,
}

impl TlsDoor {
    /// Listens.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub async fn bind(
        address: SocketAddr,
        keys: TlsKeys,
        most_each: usize,
    ) -> Result<Self, TlsError> {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|source| TlsError::Address { address, source })?;
        Ok(Self {
            listener,
            keys,
            most_each,
        })
    }
}

fn config(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    for root in certificates(&files.client_ca)? {
        roots.add(root).map_err(|source| TlsError::Pair {
            certificate: files.client_ca.clone(),
            key: files.key.clone(),
            source,
        })?;
    }
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
        .build()
        .map_err(|source| TlsError::Authority {
            path: files.client_ca.clone(),
            source,
        })?;
    let explain = |source| TlsError::Pair {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        source,
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(explain)?
        .with_client_cert_verifier(clients)
        .with_single_cert(certificates(&files.certificate)?, key(&files.key)?)
        .map_err(explain)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // Who comes again shows its certificate again: it may have expired by then.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let what = "certificate";
    let explain = |source| TlsError::File {
        path: path.to_owned(),
        what,
        source,
    };
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(explain)?;
    if found.is_empty() {
        let path = path.to_owned();
        return Err(TlsError::Empty { path, what });
    }
    Ok(found)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|source| TlsError::File {
        path: path.to_owned(),
        what: "private key",
        source,
    })
}
