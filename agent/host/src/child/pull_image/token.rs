//! How a registry wants to know who asks (RFC 9110, 11.6.1, and the token specification of distribution).

use std::collections::BTreeMap;

use hyper::Uri;
use serde::Deserialize;

use super::error::PullError;

pub(super) const MAX_TOKEN_BYTES: usize = 64 << 10;

/// What `WWW-Authenticate` wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    Bearer {
        realm: String,
        /// `service` and `scope`.
        query: Vec<(String, String)>,
    },
}

impl Challenge {
    /// Reads the first challenge.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let mut members = members(rest);
        let realm = members.remove("realm")?;
        let query = ["service", "scope"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), members.remove(name)?)))
            .collect();
        Some(Self::Bearer { realm, query })
    }
}

/// `name="value"` with commas between, which may be in values, too.
fn members(mut rest: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches(|letter: char| letter == ',' || letter.is_whitespace());
        let (value, left) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        found.insert(name.to_ascii_lowercase(), value.to_owned());
        rest = left;
    }
    found
}

/// The realm's path with the question.
pub(super) fn path(realm: &Uri, query: &[(String, String)]) -> String {
    let mut path = realm
        .path_and_query()
        .map_or("/", |path| path.as_str())
        .to_owned();
    for (name, value) in query {
        path.push(if path.contains('?') { '&' } else { '?' });
        path.push_str(name);
        path.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~:/,".contains(&byte) {
                path.push(char::from(byte));
            } else {
                path.push('%');
                let digits = [byte >> 4, byte & 15].map(u32::from);
                path.extend(
                    digits
                        .iter()
                        .filter_map(|digit| char::from_digit(*digit, 16)),
                );
            }
        }
    }
    path
}

/// The token in an answer.
pub(super) fn token_of(body: &[u8]) -> Result<String, PullError> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(default)]
        token: String,
        #[serde(default)]
        access_token: String,
    }
    let refused = |what: String| PullError::Refused(format!("the token cannot be read: {what}"));
    let answer: Answer =
        serde_json::from_slice(body).map_err(|error| refused(error.to_string()))?;
    let token = if answer.token.is_empty() {
        answer.access_token
    } else {
        answer.token
    };
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(refused("there is none".to_owned()));
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_of_registries_are_read() {
        let text = r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull,push""#;
        let query = [
            ("service", "registry.example"),
            ("scope", "repository:a/b:pull,push"),
        ];
        let query = query.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let challenge = Challenge::parse(text).unwrap();
        let realm = "https://auth.example/token".to_owned();
        let expected = Challenge::Bearer {
            realm: realm.clone(),
            query: query.to_vec(),
        };
        assert_eq!(challenge, expected);
        assert_eq!(
            path(&realm.parse().unwrap(), &query),
            "/token?service=registry.example&scope=repository:a/b:pull,push"
        );
        assert_eq!(Challenge::parse("Basic realm=x"), Some(Challenge::Basic));
        for other in ["", "Digest realm=x", "Bearer service=x"] {
            assert_eq!(Challenge::parse(other), None, "{other}");
        }
    }
}
