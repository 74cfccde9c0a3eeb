//! Requests to a registry: over connections that the agent makes, with its redirects and tokens.

use std::cell::RefCell;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::{StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::asking::Agent;
use super::error::PullError;
use super::messages::{Ask, Request};
use super::token;

/// What an answer's status line and headers may take.
const MAX_HEAD_BYTES: usize = 256 << 10;
const MAX_HEADERS: usize = 100;
/// Redirects that may follow one another.
const MAX_REDIRECTS: usize = 5;

/// Who is talked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) tls: bool,
    pub(super) host: String,
    pub(super) port: u16,
}

/// An answer whose body has not been read.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Incoming,
}

/// A client of one registry.
pub(super) struct Client<'a> {
    pub(super) agent: &'a Agent,
    registry: Origin,
    connector: TlsConnector,
    credentials: Option<(String, String)>,
    /// Until the head of an answer, and between two pieces of a body.
    patience: Duration,
    /// The header that the registry wants.
    authorization: RefCell<Option<String>>,
    /// Held by who gets another one: the others wait for it.
    login: Mutex<()>,
}

impl<'a> Client<'a> {
    pub(super) fn new(agent: &'a Agent, request: &Request) -> Result<Self, PullError> {
        let scheme = if request.is_insecure { "http" } else { "https" };
        let uri = format!("{scheme}://{}/v2/", request.registry);
        let registry = Origin::of(&parsed(&uri)?)?;
        Ok(Self {
            agent,
            registry,
            connector: connector(&request.authorities)?,
            credentials: request.credentials.clone(),
            patience: Duration::from_millis(request.answer_milliseconds),
            authorization: RefCell::default(),
            login: Mutex::default(),
        })
    }

    /// Asks the registry, with a token when it wants one.
    pub(super) async fn get(
        &self,
        path: &str,
        headers: &[(HeaderName, String)],
    ) -> Result<Answer, PullError> {
        let known = self.authorization.borrow().clone();
        let first = self.follow(path, headers).await?;
        let answer = match first.status {
            StatusCode::UNAUTHORIZED => {
                let wanted = first.headers.get(header::WWW_AUTHENTICATE);
                let wanted = wanted.and_then(|value| value.to_str().ok()).unwrap_or("");
                let login = self.login.lock().await;
                // Another download may have got one meanwhile.
                let is_known = *self.authorization.borrow() == known;
                if is_known {
                    let authorization = self.authorize(wanted).await?;
                    self.authorization.replace(Some(authorization));
                }
                drop(login);
                self.follow(path, headers).await?
            }
            _ => first,
        };
        match answer.status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => Ok(answer),
            status => Err(self.refusal(path, status, answer.body).await),
        }
    }

    /// Asks, and goes where the answer leads.
    async fn follow(
        &self,
        path: &str,
        headers: &[(HeaderName, String)],
    ) -> Result<Answer, PullError> {
        let (mut origin, mut path) = (self.registry.clone(), path.to_owned());
        for _ in 0..=MAX_REDIRECTS {
            let mut all = headers.to_vec();
            // Only the registry gets what it gave.
            let authorization = self.authorization.borrow().clone();
            if origin == self.registry
                && let Some(authorization) = authorization
            {
                all.push((header::AUTHORIZATION, authorization));
            }
            let mut answer = self.ask(&origin, &path, &all).await?;
            if !answer.status.is_redirection() {
                if origin != self.registry {
                    // It has no password to ask for, and names nobody who has.
                    answer.headers.remove(header::WWW_AUTHENTICATE);
                }
                return Ok(answer);
            }
            (origin, path) = redirected(&origin, &answer.headers)?;
        }
        Err(PullError::Refused(format!(
            "{} redirects more than {MAX_REDIRECTS} times",
            self.registry.host
        )))
    }

    /// One request on a connection of its own.
    pub(super) async fn ask(
        &self,
        origin: &Origin,
        path: &str,
        headers: &[(HeaderName, String)],
    ) -> Result<Answer, PullError> {
        let connect = Ask::Connect {
            host: origin.host.clone(),
            port: origin.port,
        };
        let descriptor = self.agent.ask(&connect).await?;
        let failed = || PullError::io(format!("{} cannot be talked to", origin.host));
        let stream = TcpStream::from(descriptor);
        let stream = tokio::net::TcpStream::from_std(stream).map_err(failed())?;
        if !origin.tls {
            return self.exchange(stream, origin, path, headers).await;
        }
        let name = ServerName::try_from(origin.host.clone())
            .map_err(|_| PullError::Refused(format!("{:?} is no host name", origin.host)))?;
        let greeted = timeout(self.patience, self.connector.connect(name, stream)).await;
        let stream = greeted
            .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
            .map_err(PullError::io(format!("TLS with {} failed", origin.host)))?;
        self.exchange(stream, origin, path, headers).await
    }

    /// What the registry's challenge wants to see.
    async fn authorize(&self, wanted: &str) -> Result<String, PullError> {
        let basic = self.credentials.as_ref().map(|(user, password)| {
            format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
        });
        Ok(match token::Challenge::parse(wanted) {
            Some(token::Challenge::Basic) => basic.ok_or_else(|| {
                let host = &self.registry.host;
                PullError::Denied(format!("{host} wants a user and a password"))
            })?,
            Some(token::Challenge::Bearer { realm, query }) => {
                let uri = parsed(&realm)?;
                let origin = Origin::of(&uri)?;
                if origin.tls != self.registry.tls && !origin.tls {
                    let message = format!("the realm {realm:?} is not https");
                    return Err(PullError::Refused(message));
                }
                let path = token::path(&uri, &query);
                let headers: Vec<_> = basic
                    .into_iter()
                    .map(|basic| (header::AUTHORIZATION, basic))
                    .collect();
                let answer = self.ask(&origin, &path, &headers).await?;
                match answer.status {
                    StatusCode::OK => {
                        let body = self.body_of(answer.body, token::MAX_TOKEN_BYTES).await?;
                        format!("Bearer {}", token::token_of(&body)?)
                    }
                    status => return Err(self.refusal(&path, status, answer.body).await),
                }
            }
            None => {
                let message = format!("{wanted:?} is no way to log in that is known here");
                return Err(PullError::Refused(message));
            }
        })
    }

    /// What the registry says of a request that failed.
    async fn refusal(&self, path: &str, status: StatusCode, body: Incoming) -> PullError {
        let said = self.body_of(body, 4096).await.unwrap_or_default();
        let said: String = String::from_utf8_lossy(&said)
            .chars()
            .map(|letter| if letter.is_control() { ' ' } else { letter })
            .take(300)
            .collect();
        let said = said.trim();
        let host = &self.registry.host;
        let message = match status {
            StatusCode::NOT_FOUND => format!("{host}: {path}: not found"),
            _ => format!("{host}: {path}: unexpected status {status}: {said}"),
        };
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => PullError::Denied(message),
            _ => PullError::Refused(message),
        }
    }

    /// The next piece of a body.
    pub(super) async fn next_piece(&self, body: &mut Incoming) -> Result<Option<Bytes>, PullError> {
        loop {
            let frame = timeout(self.patience, body.frame()).await;
            let frame = frame.map_err(|_| {
                PullError::io("the registry sends nothing")(std::io::ErrorKind::TimedOut.into())
            })?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => {
                    let source = std::io::Error::other(error);
                    return Err(PullError::io("the connection broke")(source));
                }
                Some(Ok(frame)) => {
                    // Trailers are nobody's business.
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// A whole body of at most `most` bytes.
    pub(super) async fn body_of(&self, body: Incoming, most: usize) -> Result<Vec<u8>, PullError> {
        let read = timeout(self.patience, Limited::new(body, most).collect()).await;
        match read {
            Ok(Ok(collected)) => Ok(collected.to_bytes().to_vec()),
            Ok(Err(error)) => Err(PullError::Refused(format!(
                "an answer of at most {most} bytes cannot be read: {error}"
            ))),
            Err(_) => Err(PullError::io("the registry sends nothing")(
                std::io::ErrorKind::TimedOut.into(),
            )),
        }
    }

    async fn exchange<S>(
        &self,
        stream: S,
        origin: &Origin,
        path: &str,
        headers: &[(HeaderName, String)],
    ) -> Result<Answer, PullError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let broken = |error: hyper::Error| {
            PullError::io(format!("{} does not answer", origin.host))(std::io::Error::other(error))
        };
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_HEAD_BYTES)
            .max_headers(MAX_HEADERS)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        // It ends with the answer, whose reader learns what went wrong.
        tokio::spawn(connection);
        let mut request = hyper::Request::get(path)
            .header(header::HOST, origin.authority())
            .header(
                header::USER_AGENT,
                concat!("kvmlet/", env!("CARGO_PKG_VERSION")),
            )
            .header(header::CONNECTION, "close");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| {
            PullError::Refused(format!("{path:?} cannot be asked for: {error}"))
        })?;
        let answer = timeout(self.patience, sender.send_request(request)).await;
        let response = answer
            .map_err(|_| {
                let what = format!("{} does not answer", origin.host);
                PullError::io(what)(std::io::ErrorKind::TimedOut.into())
            })?
            .map_err(broken)?;
        let (head, body) = response.into_parts();
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body,
        })
    }
}

impl Origin {
    pub(super) fn of(uri: &Uri) -> Result<Self, PullError> {
        let refused = |what: &str| PullError::Refused(format!("{uri}: {what}"));
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(refused("neither http nor https")),
        };
        let authority = uri.authority().ok_or_else(|| refused("no host"))?;
        if authority.as_str().contains('@') {
            return Err(refused("a user is named"));
        }
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        Ok(Self {
            tls,
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
        })
    }

    fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        match (self.tls, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

/// Where a redirect leads: not to another scheme.
fn redirected(from: &Origin, headers: &HeaderMap) -> Result<(Origin, String), PullError> {
    let location = headers.get(header::LOCATION);
    let location = location.and_then(|value| value.to_str().ok());
    let location = location
        .ok_or_else(|| PullError::Refused(format!("{} redirects to nowhere", from.host)))?;
    let uri = parsed(location)?;
    let path = uri
        .path_and_query()
        .map_or("/", |path| path.as_str())
        .to_owned();
    if uri.scheme().is_none() && location.starts_with('/') && !location.starts_with("//") {
        return Ok((from.clone(), path));
    }
    let origin = Origin::of(&uri)?;
    if origin.tls != from.tls {
        return Err(PullError::Refused(format!(
            "{} redirects to another scheme: {location}",
            from.host
        )));
    }
    Ok((origin, path))
}

fn parsed(text: &str) -> Result<Uri, PullError> {
    text.parse()
        .map_err(|error| PullError::Refused(format!("{text:?} is no address: {error}")))
}

fn connector(authorities: &str) -> Result<TlsConnector, PullError> {
    let mut roots = RootCertStore::empty();
    let certificates: Vec<CertificateDer<'_>> =
        CertificateDer::pem_slice_iter(authorities.as_bytes())
            .filter_map(Result::ok)
            .collect();
    roots.add_parsable_certificates(certificates);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| PullError::Refused(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads(to: &str) -> Result<(Origin, String), String> {
        let from = Origin::of(&parsed("https://registry.example/v2/").unwrap()).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::LOCATION, to.parse().unwrap());
        redirected(&from, &headers).map_err(|error| error.to_string())
    }

    #[test]
    fn a_redirect_leads_to_another_host_and_never_to_another_scheme() {
        let (origin, path) = leads("https://blobs.example:8443/a?b=c").unwrap();
        assert_eq!((origin.host.as_str(), origin.port), ("blobs.example", 8443));
        assert_eq!(path, "/a?b=c");
        let (origin, path) = leads("/v2/other").unwrap();
        assert_eq!(
            (origin.host.as_str(), path.as_str()),
            ("registry.example", "/v2/other")
        );
        let refused = leads("http://blobs.example/a").unwrap_err();
        assert!(refused.contains("another scheme"), "{refused}");
        for text in [
            "ftp://blobs.example/a",
            "https://user@blobs.example/a",
            "//blobs.example/a",
        ] {
            assert!(leads(text).is_err(), "{text}");
        }
    }
}
