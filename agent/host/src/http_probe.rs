//! One HTTP request to a guest, of whose answer nothing but the status is looked at.

mod tls;

use std::net::SocketAddr;

use agent_domain::HttpQuestion;
use futures_util::future::{Either, select};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::probe_error::ProbeError;

/// What an answer's status line and headers may take.
const MAX_HEAD_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 100;

/// Sends the request, over TLS if the probe wants it.
pub(crate) async fn get(
    stream: TcpStream,
    address: SocketAddr,
    question: &HttpQuestion,
) -> Result<(), ProbeError> {
    if !question.tls {
        return ask(stream, address, question).await;
    }
    let stream = tls::connect(stream, address.ip())
        .await
        .map_err(|error| ProbeError::Guest(format!("TLS with {address}: {error}")))?;
    ask(stream, address, question).await
}

async fn ask<S>(stream: S, address: SocketAddr, question: &HttpQuestion) -> Result<(), ProbeError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let scheme = if question.tls { "https" } else { "http" };
    let url = format!("{scheme}://{address}{}", question.path);
    let bad = |error: hyper::Error| ProbeError::Guest(format!("Get {url:?}: {error}"));
    let request = request(address, question).map_err(|error| {
        // Admission has let it pass, so this is nobody's fault but the node's.
        ProbeError::Node(format!("Get {url:?}: {error}"))
    })?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(bad)?;
    let answer = std::pin::pin!(sender.send_request(request));
    let response = match select(answer, std::pin::pin!(connection)).await {
        Either::Left((response, _)) => response,
        // It has ended, with the answer or without one.
        Either::Right((_, answer)) => answer.await,
    };
    let status = response.map_err(bad)?.status().as_u16();
    if (200..400).contains(&status) {
        Ok(())
    } else {
        Err(ProbeError::Guest(format!(
            "HTTP probe failed with statuscode: {status}"
        )))
    }
}

fn request(
    address: SocketAddr,
    question: &HttpQuestion,
) -> Result<Request<Empty<Bytes>>, hyper::http::Error> {
    let mut request = Request::get(&question.path);
    let mut has_host = false;
    let mut has_agent = false;
    for (name, value) in &question.headers {
        has_host |= name.eq_ignore_ascii_case("host");
        has_agent |= name.eq_ignore_ascii_case("user-agent");
        request = request.header(name, value);
    }
    if !has_host {
        request = request.header(header::HOST, address.to_string());
    }
    if !has_agent {
        let agent = concat!("kvmlet-probe/", env!("CARGO_PKG_VERSION"));
        request = request.header(header::USER_AGENT, agent);
    }
    request
        .header(header::CONNECTION, "close")
        .body(Empty::new())
}

#[cfg(test)]
mod tests {
    use agent_domain::Endpoint;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Asks a guest that gives this answer; what it was asked, too.
    async fn asked(answer: &'static [u8], tls: bool) -> (Result<(), String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let guest = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut heard = vec![0; 4096];
            let count = stream.read(&mut heard).await.unwrap();
            // The client may have read enough before all is written.
            let _ = stream.write_all(answer).await;
            String::from_utf8_lossy(&heard[..count]).into_owned()
        });
        let question = HttpQuestion {
            endpoint: Endpoint {
                host: None,
                port: address.port(),
            },
            path: "/ready?x=1".to_owned(),
            tls,
            headers: vec![("X-Probe".to_owned(), "yes".to_owned())],
        };
        let stream = TcpStream::connect(address).await.unwrap();
        let said = get(stream, address, &question).await;
        let said = said.map_err(|why| match why {
            ProbeError::Guest(why) => why,
            ProbeError::Node(why) => panic!("{why}"),
        });
        (said, guest.await.unwrap())
    }

    #[tokio::test]
    async fn a_status_below_400_is_a_good_answer_and_nothing_else_is_looked_at() {
        let (said, heard) = asked(b"HTTP/1.1 204 Fine\r\n\r\n", false).await;
        assert_eq!(said, Ok(()));
        assert!(heard.starts_with("GET /ready?x=1 HTTP/1.1\r\n"), "{heard}");
        for header in [
            "x-probe: yes\r\n",
            "host: 127.0.0.1:",
            "user-agent: kvmlet-probe/",
        ] {
            assert!(heard.contains(header), "{heard}");
        }
        let elsewhere = b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n";
        assert_eq!(asked(elsewhere, false).await.0, Ok(()));
        let long = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nhalf";
        assert_eq!(asked(long, false).await.0, Ok(()));
        let (said, _) = asked(b"HTTP/1.1 503 No\r\n\r\n", false).await;
        assert_eq!(said.unwrap_err(), "HTTP probe failed with statuscode: 503");
    }

    #[tokio::test]
    async fn what_is_no_http_is_a_bad_answer() {
        let endless: &'static [u8] = Box::leak(vec![b'x'; 8 << 20].into_boxed_slice());
        for answer in [
            b"".as_slice(),
            b"SSH-2.0-OpenSSH\r\n",
            b"HTTP/1.1 abc\r\n\r\n",
            endless,
        ] {
            let why = asked(answer, false).await.0.unwrap_err();
            assert!(why.starts_with("Get \"http://127.0.0.1:"), "{why}");
            assert!(why.len() < 300, "{why}");
        }
        let why = asked(b"HTTP/1.1 200 OK\r\n\r\n", true).await.0.unwrap_err();
        assert!(why.starts_with("TLS with 127.0.0.1:"), "{why}");
    }
}
