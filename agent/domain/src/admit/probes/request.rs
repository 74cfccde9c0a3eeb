//! An HTTP request.

use proto_node::vmi::{HttpGetAction, HttpHeader, VirtualMachineInstanceSpec};

use super::super::review::Review;
use super::endpoint;
use crate::error::{Bound, FieldError, Rule};
use crate::probe::HttpQuestion;

/// More is no question.
const MAX_PATH_BYTES: usize = 4096;
const MAX_HEADERS: usize = 64;
const MAX_HEADER_BYTES: usize = 4096;

pub(super) fn admit(
    path: &str,
    get: &HttpGetAction,
    spec: &VirtualMachineInstanceSpec,
    review: &mut Review<'_>,
) -> Option<HttpQuestion> {
    let asked = (get.host.as_str(), get.port.as_slice());
    let endpoint = endpoint::admit(path, asked, spec, review);
    let target = target(&get.path);
    if target.len() > MAX_PATH_BYTES {
        let message = format!("must have at most {MAX_PATH_BYTES} bytes");
        review.unable(&format!("{path}.path"), &get.path, message);
    }
    let field = format!("{path}.httpHeaders");
    if get.http_headers.len() > MAX_HEADERS {
        let message = format!("at most {MAX_HEADERS} headers");
        let error = FieldError::new(field, Rule::Invalid, message);
        review.push(error.beyond(Bound::Release));
        return None;
    }
    for (index, header) in get.http_headers.iter().enumerate() {
        check_header(&format!("{field}[{index}]"), header, review);
    }
    let headers = get.http_headers.iter();
    Some(HttpQuestion {
        endpoint: endpoint?,
        path: target,
        // Other schemes were reported already.
        tls: get.scheme == "HTTPS",
        headers: headers
            .map(|header| (header.name.clone(), header.value.clone()))
            .collect(),
    })
}

fn check_header(path: &str, header: &HttpHeader, review: &mut Review<'_>) {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let HttpHeader { name, value } = header;
    if name.is_empty() || !name.bytes().all(is_token) {
        let message = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. \
                       'X-Header-Name')";
        review.invalid(&format!("{path}.name"), name, message);
    }
    if value
        .chars()
        .any(|character| character.is_control() && character != '\t')
    {
        let message = "must not contain control characters";
        review.invalid(&format!("{path}.value"), value, message);
    }
    if name.len() + value.len() > MAX_HEADER_BYTES {
        let message = format!("must have at most {MAX_HEADER_BYTES} bytes");
        review.unable(path, name, message);
    }
}

/// What stands in the request's first line: nothing of the path may end it.
fn target(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut target = slash.to_owned();
    for byte in path.bytes() {
        if byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte) {
            target.push(char::from(byte));
        } else {
            target.push_str(&format!("%{byte:02X}"));
        }
    }
    target
}

#[cfg(test)]
mod tests {
    use super::target;

    #[test]
    fn a_path_is_one_word_whatever_was_written() {
        for (path, expected) in [
            ("", "/"),
            ("healthz", "/healthz"),
            ("/ready?full=1&x=%20", "/ready?full=1&x=%20"),
            ("/a b\r\nHost: c#d", "/a%20b%0D%0AHost:%20c"),
            ("/ü", "/%C3%BC"),
        ] {
            assert_eq!(target(path), expected);
        }
    }
}
