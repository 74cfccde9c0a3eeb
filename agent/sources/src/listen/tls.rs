//! TCP with TLS 1.3, where both sides show a certificate.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime,
};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;

/// Interval between reads of the list of withdrawn certificates.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Interval between checks for expired certificates of open connections.
const EXPIRY: Duration = Duration::from_secs(10);

/// The files of the agent's side, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The agent's certificate, followed by those between it and a root.
    pub certificate: PathBuf,
    /// Private key of `certificate`, in PEM.
    pub key: PathBuf,
    /// Certificates of who signs those of clients.
    pub client_ca: PathBuf,
    /// Lists of clients' certificates that were withdrawn, one of each authority that signs any, if there are lists.
    pub client_crl: Option<PathBuf>,
}

/// Why TLS cannot be spoken.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is no PEM.
    #[error("{} cannot be read as PEM ({what})", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// The underlying error.
        source: pem::Error,
    },
    /// A file holds nothing of what it should.
    #[error("{} holds no {what}", path.display())]
    Empty {
        /// Path of the file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// The authority of clients, or its list of what it withdrew, cannot be used.
    #[error("{} cannot be used to judge certificates of clients", path.display())]
    Authority {
        /// Path of the file.
        path: PathBuf,
        /// The underlying error.
        source: rustls::server::VerifierBuilderError,
    },
    /// Certificate and key do not do.
    #[error("the certificate {} with the key {} cannot be used", certificate.display(), key.display())]
    Pair {
        /// File with the certificate, in PEM.
        certificate: PathBuf,
        /// File with the private key, in PEM.
        key: PathBuf,
        /// The underlying error.
        source: rustls::Error,
    },
}

/// What the agent shows and whom it believes. Cheap to clone; connections that come after a change see it, and those that
/// are there are judged by it again.
#[derive(Clone, Debug)]
pub struct TlsKeys(Arc<watch::Sender<Arc<Loaded>>>);

/// What was read of the files.
#[derive(Debug)]
struct Loaded {
    files: TlsFiles,
    /// Of the list of withdrawn certificates, before it was read.
    crl_stamp: Option<Stamp>,
    config: Arc<ServerConfig>,
    clients: Arc<dyn ClientCertVerifier>,
}

/// Tells a file that was changed or replaced from what it was.
type Stamp = (u64, u64, i64, i64);

impl TlsKeys {
    /// Reads the files.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let loaded = Arc::new(Loaded::read(files)?);
        Ok(Self(Arc::new(watch::Sender::new(loaded))))
    }

    /// Reads the files again. What cannot be used changes nothing.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn reload(&self, files: &TlsFiles) -> Result<(), TlsError> {
        self.0.send_replace(Arc::new(Loaded::read(files)?));
        Ok(())
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0.borrow().config))
    }

    /// Reads the files again whenever the list of withdrawn certificates was changed or replaced; never ends.
    pub(super) async fn follow_withdrawals(self) {
        let mut turns = tokio::time::interval(CHECK_INTERVAL);
        // A list that cannot be used is complained about once.
        let mut refused = None;
        loop {
            turns.tick().await;
            let loaded = Arc::clone(&self.0.borrow());
            let stamp = loaded.files.client_crl.as_deref().and_then(stamp);
            if stamp == loaded.crl_stamp || stamp == refused {
                continue;
            }
            let keys = self.clone();
            let read = tokio::task::spawn_blocking(move || keys.reload(&loaded.files)).await;
            match read {
                Ok(Ok(())) => tracing::info!("the list of withdrawn certificates was read again"),
                Ok(Err(error)) => {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    let cause = cause.unwrap_or_default();
                    tracing::error!("{error}: {cause}; what was read before holds");
                    refused = stamp;
                }
                Err(error) => tracing::error!(%error, "certificates could not be read again"),
            }
        }
    }

    /// Follows whether a client's certificates, its own first, are good.
    pub(super) fn follow(&self, chain: Vec<CertificateDer<'static>>) -> Validity {
        let changes = WatchStream::from_changes(self.0.subscribe());
        let mut turns = tokio::time::interval(EXPIRY);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Validity {
            chain,
            keys: self.clone(),
            changes,
            turns,
        }
    }

    fn judge(&self, chain: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let clients = Arc::clone(&self.0.borrow().clients);
        let Some((own, others)) = chain.split_first() else {
            return Err(rustls::Error::NoCertificatesPresented);
        };
        clients
            .verify_client_cert(own, others, UnixTime::now())
            .map(drop)
    }
}

/// Whether a client's certificates, which were good when it came, are good still.
pub(super) struct Validity {
    chain: Vec<CertificateDer<'static>>,
    keys: TlsKeys,
    changes: WatchStream<Arc<Loaded>>,
    turns: Interval,
}

impl Validity {
    /// Ready with the reason once they are not: they were withdrawn, have expired, or another authority holds.
    pub(super) fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<rustls::Error> {
        let mut is_due = false;
        // Both are asked until they have nothing more to tell, so that both wake the task.
        while let Poll::Ready(Some(_)) = Pin::new(&mut self.changes).poll_next(context) {
            is_due = true;
        }
        while self.turns.poll_tick(context).is_ready() {
            is_due = true;
        }
        if !is_due {
            return Poll::Pending;
        }
        match self.keys.judge(&self.chain) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(error),
        }
    }
}

/// A TCP port where clients with certificates are served.
#[derive(Debug)]
pub struct TlsListener {
    pub(super) listener: TcpListener,
    pub(super) keys: TlsKeys,
    /// Connections that one client may have.
    pub(super) most_each: usize,
}

impl TlsListener {
    /// Serves those who connect to `listener`.
    #[must_use]
    pub fn new(listener: TcpListener, keys: TlsKeys, most_each: usize) -> Self {
        Self {
            listener,
            keys,
            most_each,
        }
    }
}

impl Loaded {
    fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let crl_stamp = files.client_crl.as_deref().and_then(stamp);
        let clients = verifier(files)?;
        Ok(Self {
            files: files.clone(),
            crl_stamp,
            config: Arc::new(config(files, Arc::clone(&clients))?),
            clients,
        })
    }
}

/// Who judges certificates of clients.
fn verifier(files: &TlsFiles) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for root in certificates(&files.client_ca)? {
        roots.add(root).map_err(|source| TlsError::Pair {
            certificate: files.client_ca.clone(),
            key: files.key.clone(),
            source,
        })?;
    }
    let provider = Arc::new(ring::default_provider());
    let mut clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
    let judged_by = files.client_crl.as_ref();
    if let Some(path) = judged_by {
        // An authority without a list, and one in between without one, is believed nothing: a file that was cut short
        // must not let anybody in.
        clients = clients.with_crls(withdrawals(path)?);
    }
    clients
        .build()
        .map_err(|source| TlsError::Authority {
            path: judged_by.unwrap_or(&files.client_ca).clone(),
            source,
        })
        .map(|clients| clients as Arc<dyn ClientCertVerifier>)
}

fn config(
    files: &TlsFiles,
    clients: Arc<dyn ClientCertVerifier>,
) -> Result<ServerConfig, TlsError> {
    let explain = |source| TlsError::Pair {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        source,
    };
    let provider = Arc::new(ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(explain)?
        .with_client_cert_verifier(clients)
        .with_single_cert(certificates(&files.certificate)?, key(&files.key)?)
        .map_err(explain)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // No session is resumed, so that a client shows its certificate each time: it may have expired.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Device, inode, time of the last change and size; nothing where there is no such file.
fn stamp(path: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(path).ok()?;
    let changed = found.ctime().wrapping_mul(1_000_000_000);
    let changed = changed.wrapping_add(found.ctime_nsec());
    Some((
        found.dev(),
        found.ino(),
        changed,
        found.size().cast_signed(),
    ))
}

/// Lists of certificates that were withdrawn (RFC 5280, 5).
fn withdrawals(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let what = "certificate revocation list";
    let explain = |source| TlsError::File {
        path: path.to_owned(),
        what,
        source,
    };
    let found = CertificateRevocationListDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(explain)?;
    if found.is_empty() {
        let path = path.to_owned();
        return Err(TlsError::Empty { path, what });
    }
    Ok(found)
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
