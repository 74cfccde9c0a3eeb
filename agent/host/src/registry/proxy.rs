//! Proxies: connections to registries that another host makes (RFC 9110, 9.3.6, the method CONNECT).
//!
//! The agent asks for them itself, and not the child that talks to registries: whoever speaks to a proxy reaches
//! whatever the proxy does. The proxy is one that the operator named. All the same its answer is bounded.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::settings::is_host;

/// What the head of a proxy's answer may take.
const MAX_HEAD_BYTES: usize = 8 << 10;

/// Has the proxy at the other end of `stream` connect to `host`, an IPv6 address in brackets, within `patience`.
pub(super) async fn tunnel(
    mut stream: TcpStream,
    host: &str,
    port: u16,
    patience: Duration,
) -> Result<TcpStream, String> {
    if !is_host(host.trim_start_matches('[').trim_end_matches(']')) {
        return Err(format!("{host:?} is no host name"));
    }
    let request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
    let asked = async {
        stream.write_all(request.as_bytes()).await?;
        head(&mut stream).await
    };
    let head = match tokio::time::timeout(patience, asked).await {
        Ok(Ok(head)) => head,
        Ok(Err(error)) => return Err(format!("it does not answer as a proxy does: {error}")),
        Err(_) => return Err(format!("no answer within {patience:?}")),
    };
    let line = head.lines().next().unwrap_or_default();
    let mut words = line.splitn(3, ' ');
    match (words.next(), words.next()) {
        (Some("HTTP/1.1" | "HTTP/1.0"), Some(status)) if status.starts_with('2') => Ok(stream),
        (Some("HTTP/1.1" | "HTTP/1.0"), Some("407")) => Err(
            "it wants a user and a password, and none can be given: let it take this node by its address"
                .to_owned(),
        ),
        _ => Err(format!("it says {:?}", agent_domain::tame(line, 200))),
    }
}

/// The head of an answer, and not a byte of what comes after it, which is the registry's.
async fn head(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MAX_HEAD_BYTES {
            let text = format!("a head of more than {MAX_HEAD_BYTES} bytes");
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, text));
        }
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of a proxy that answers so.
    async fn answered(answer: Vec<u8>, host: &str) -> Result<(), String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            // The answer does not wait for the question, and the other end may be gone.
            drop(stream.write_all(&answer).await);
            let mut asked = Vec::new();
            drop(stream.read_to_end(&mut asked).await);
            String::from_utf8(asked).unwrap()
        });
        let stream = TcpStream::connect(address).await.unwrap();
        let outcome = match tunnel(stream, host, 443, Duration::from_secs(60)).await {
            Ok(mut stream) => {
                let mut first = [0; 5];
                stream.read_exact(&mut first).await.unwrap();
                assert_eq!(&first, b"hello", "what comes next is the registry's");
                Ok(())
            }
            Err(why) => Err(why),
        };
        if outcome.is_ok() {
            let expected = format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n");
            assert_eq!(proxy.await.unwrap(), expected);
        }
        outcome
    }

    #[tokio::test]
    async fn what_a_proxy_answers_is_bounded_and_shown() {
        let granted = b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nhello".to_vec();
        answered(granted.clone(), "registry.example").await.unwrap();
        answered(granted.clone(), "[fd00::1]").await.unwrap();
        let why = answered(granted, "a\r\nX: y").await.unwrap_err();
        assert!(why.contains("no host name"), "{why}");
        for (answer, words) in [
            (b"HTTP/1.1 407 No\r\n\r\n".to_vec(), "a user and a password"),
            (b"HTTP/1.1 403 No\x1b such\r\n\r\n".to_vec(), "403"),
            (b"SSH-2.0-x\r\n\r\n".to_vec(), "SSH-2.0-x"),
            (vec![b'x'; 1 << 20], "more than 8192 bytes"),
        ] {
            let why = answered(answer, "registry.example").await.unwrap_err();
            assert!(why.contains(words), "{words}: {why}");
            assert!(!why.contains('\x1b'), "{why:?}");
        }
    }
}
