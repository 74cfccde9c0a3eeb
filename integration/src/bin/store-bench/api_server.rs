//! A kube-apiserver, called as its clients call it: JSON by HTTP over TLS.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

const ADDRESS: &str = "127.0.0.1:6443";
/// The certificate that it made for itself, and behind it the one of who signed it.
const CERTIFICATES: &str = "/run/kube-apiserver/apiserver.crt";
/// What its `--token-auth-file` knows.
const TOKEN: &str = "Bearer bench";
const READY: &str = "/readyz";
const NAMESPACES: &str = "/api/v1/namespaces";

/// It takes seconds to become ready, and does not report when it is.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A connection to a kube-apiserver.
pub(crate) struct ApiServer(SendRequest<Full<Bytes>>);

impl ApiServer {
    pub(crate) async fn connect() -> anyhow::Result<Self> {
        let stream = TcpStream::connect(ADDRESS)
            .await
            .context("kube-apiserver")?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("127.0.0.1")?;
        let stream = connector()?.connect(name, stream).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                eprintln!("store-bench: the connection to kube-apiserver: {error}");
            }
        });
        Ok(Self(sender))
    }

    /// Waits until the server says that it is ready.
    pub(crate) async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        loop {
            let (status, _) = self.send(Method::GET, READY, Bytes::new()).await?;
            if status == StatusCode::OK {
                return Ok(());
            }
            // kube-apiserver has no other signal of being ready than this answer.
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Makes the namespace of the objects, unless it is there.
    pub(crate) async fn make_namespace(&mut self, name: &str) -> anyhow::Result<()> {
        let object = format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{{\"name\":\"{name}\"}}}}"
        );
        let (status, answer) = self.send(Method::POST, NAMESPACES, object.into()).await?;
        let is_there = matches!(status, StatusCode::CREATED | StatusCode::CONFLICT);
        ensure!(is_there, "{status}: {}", String::from_utf8_lossy(&answer));
        Ok(())
    }

    /// Creates an object, which is on disk when the server answers.
    pub(crate) async fn create(&mut self, namespace: &str, object: Vec<u8>) -> anyhow::Result<()> {
        let path = config_maps(namespace);
        let (status, answer) = self.send(Method::POST, &path, object.into()).await?;
        let is_created = status == StatusCode::CREATED;
        ensure!(is_created, "{status}: {}", String::from_utf8_lossy(&answer));
        Ok(())
    }

    /// A `ConfigMapList` of all objects, as JSON.
    pub(crate) async fn list(&mut self, namespace: &str) -> anyhow::Result<Bytes> {
        let path = config_maps(namespace);
        let (status, answer) = self.send(Method::GET, &path, Bytes::new()).await?;
        let is_listed = status == StatusCode::OK;
        ensure!(is_listed, "{status}: {}", String::from_utf8_lossy(&answer));
        Ok(answer)
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        self.0.ready().await?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, ADDRESS)
            .header(header::AUTHORIZATION, TOKEN)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(Full::new(body))?;
        let answer = self.0.send_request(request).await?;
        let status = answer.status();
        Ok((status, answer.into_body().collect().await?.to_bytes()))
    }
}

fn config_maps(namespace: &str) -> String {
    format!("{NAMESPACES}/{namespace}/configmaps")
}

/// Trusts who signed the server's certificate, and nobody else.
fn connector() -> anyhow::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    let last = CertificateDer::pem_file_iter(CERTIFICATES)
        .context(CERTIFICATES)?
        .last()
        .context("kube-apiserver has no certificate")?;
    roots.add(last?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
