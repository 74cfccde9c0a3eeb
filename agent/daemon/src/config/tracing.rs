//! `[tracing]`: where spans go.

use std::path::{Path, PathBuf};

use hyper::Uri;
use serde::Deserialize;

/// `[tracing]`, with the kubelet's names.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Tracing {
    /// A collector that takes OTLP over gRPC; no spans are exported when it is left out.
    endpoint: Option<String>,
    /// How many of a million traces that begin here are recorded. A caller decides for those that it began.
    sampling_rate_per_million: u32,
    /// With an `https` endpoint: who signs the collector's certificate, in PEM.
    ca: Option<PathBuf>,
    /// With an `https` endpoint that wants one: this node's certificate in PEM.
    certificate: Option<PathBuf>,
    /// Private key of `certificate`, in PEM.
    key: Option<PathBuf>,
}

impl Default for Tracing {
    fn default() -> Self {
        Self {
            endpoint: None,
            sampling_rate_per_million: MILLION,
            ca: None,
            certificate: None,
            key: None,
        }
    }
}

/// Where spans go, checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Destination {
    /// `http://HOST:PORT`, `https://HOST:PORT` or `unix:///PATH`.
    pub(crate) uri: String,
    /// With `https`.
    pub(crate) tls: Option<TlsFiles>,
    /// Whether what is sent can be read by others than this node.
    pub(crate) is_exposed: bool,
    /// The share of traces that begin here and are recorded, 0 to 1.
    pub(crate) sampling: f64,
}

/// Files for TLS, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// Who signs the collector's certificate.
    pub(crate) ca: PathBuf,
    /// This node's certificate and its key, if it shows one.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

const MILLION: u32 = 1_000_000;

/// Setting, value and the rule that it breaks.
type Fault = (&'static str, String, &'static str);

impl Tracing {
    /// Where spans go; nowhere without an endpoint.
    ///
    /// # Errors
    /// [`Fault`].
    pub(super) fn destination(&self) -> Result<Option<Destination>, Fault> {
        let rate = self.sampling_rate_per_million;
        if rate > MILLION {
            let setting = "tracing.sampling_rate_per_million";
            return Err((setting, rate.to_string(), "must be 0 to 1000000"));
        }
        let place = self
            .endpoint
            .as_deref()
            .map(CollectorAddress::parse)
            .transpose();
        let place = place.map_err(|rule| {
            let value = self.endpoint.clone().unwrap_or_default();
            ("tracing.endpoint", value, rule)
        })?;
        let is_secure = place.as_ref().is_some_and(|place| place.is_secure);
        let tls = self.tls_files(is_secure)?;
        Ok(place.map(|place| Destination {
            uri: place.uri,
            tls,
            is_exposed: place.is_exposed,
            sampling: f64::from(rate) / f64::from(MILLION),
        }))
    }

    fn tls_files(&self, is_secure: bool) -> Result<Option<TlsFiles>, Fault> {
        let named = [
            ("tracing.ca", &self.ca),
            ("tracing.certificate", &self.certificate),
            ("tracing.key", &self.key),
        ];
        for (setting, path) in named {
            let Some(path) = path else { continue };
            let value = || path.display().to_string();
            if !is_secure {
                return Err((setting, value(), "is only for an https:// endpoint"));
            }
            if !path.is_absolute() {
                return Err((setting, value(), "must be an absolute path"));
            }
        }
        if !is_secure {
            return Ok(None);
        }
        let missing = |setting, rule| Err((setting, String::new(), rule));
        let Some(ca) = self.ca.clone() else {
            let rule = "is missing: an https:// endpoint is believed by who signed its certificate";
            return missing("tracing.ca", rule);
        };
        let identity = match (self.certificate.clone(), self.key.clone()) {
            (Some(_), None) => {
                return missing("tracing.key", "is missing: tracing.certificate needs it");
            }
            (None, Some(_)) => {
                return missing(
                    "tracing.certificate",
                    "is missing: tracing.key is of no use without",
                );
            }
            (certificate, key) => certificate.zip(key),
        };
        Ok(Some(TlsFiles { ca, identity }))
    }
}

/// Address of a collector.
struct CollectorAddress {
    uri: String,
    is_secure: bool,
    is_exposed: bool,
}

impl CollectorAddress {
    fn parse(text: &str) -> Result<Self, &'static str> {
        const RULE: &str = "must be http://HOST:PORT or https://HOST:PORT of a collector that takes OTLP over gRPC, \
                            such as http://127.0.0.1:4317, or unix:/PATH of its socket";
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            // sockaddr_un
            let fits = Path::new(path).is_absolute() && path.len() < 108;
            let place = Self {
                uri: format!("unix://{path}"),
                is_secure: false,
                is_exposed: false,
            };
            return fits.then_some(place).ok_or(RULE);
        }
        let uri: Uri = text.parse().map_err(|_| RULE)?;
        let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        let is_secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(RULE),
        };
        let host = uri.host().unwrap_or_default();
        if !is_bare || uri.port().is_none() || host.is_empty() {
            return Err(RULE);
        }
        Ok(Self {
            uri: text.to_owned(),
            is_secure,
            is_exposed: !is_secure && !is_loopback(host),
        })
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address: Result<std::net::IpAddr, _> = bare.parse();
    bare == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn parse(text: &str) -> Result<Option<Destination>, String> {
        let text = format!("[tracing]\n{text}");
        let config = Config::parse(Path::new("/etc/kvmlet/kvmlet.toml"), &text);
        let config = config.map_err(|error| error.to_string())?;
        let destination = config.destination_of_spans();
        destination.map_err(|error| error.to_string())
    }

    #[test]
    fn spans_go_nowhere_unless_an_endpoint_says_where() {
        assert_eq!(parse(""), Ok(None));
        assert_eq!(parse("sampling_rate_per_million = 10"), Ok(None));
        let plain = parse("endpoint = \"http://127.0.0.1:4317\"").expect("is fine");
        let plain = plain.expect("goes somewhere");
        assert_eq!((plain.tls, plain.is_exposed), (None, false));
        assert!((plain.sampling - 1.0).abs() < f64::EPSILON);
        let far =
            "endpoint = \"http://collector.example:4317\"\nsampling_rate_per_million = 500000";
        let far = parse(far).expect("is fine").expect("goes somewhere");
        assert!(far.is_exposed && (far.sampling - 0.5).abs() < f64::EPSILON);
        let socket = parse("endpoint = \"unix:/run/otel.sock\"").expect("is fine");
        assert_eq!(
            socket.map(|to| to.uri),
            Some(String::from("unix:///run/otel.sock"))
        );
        let secure = "endpoint = \"https://collector.example:4317\"\nca = \"/ca\"\ncertificate = \"/c\"\nkey = \"/k\"";
        let secure = parse(secure).expect("is fine").expect("goes somewhere");
        assert_eq!(
            (secure.is_exposed, secure.tls),
            (
                false,
                Some(TlsFiles {
                    ca: PathBuf::from("/ca"),
                    identity: Some((PathBuf::from("/c"), PathBuf::from("/k"))),
                })
            )
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        let https = "endpoint = \"https://c.example:4317\"";
        for (text, part) in [
            ("endpoint = \"127.0.0.1:4317\"", "tracing.endpoint"),
            ("endpoint = \"http://127.0.0.1\"", "tracing.endpoint"),
            (
                "endpoint = \"http://127.0.0.1:4317/v1/traces\"",
                "tracing.endpoint",
            ),
            ("endpoint = \"unix:otel.sock\"", "tracing.endpoint"),
            (
                "sampling_rate_per_million = 1000001",
                "tracing.sampling_rate_per_million",
            ),
            (
                "endpoint = \"http://127.0.0.1:4317\"\nca = \"/ca\"",
                "tracing.ca",
            ),
            (https, "tracing.ca"),
            (&format!("{https}\nca = \"ca\""), "absolute"),
            (
                &format!("{https}\nca = \"/ca\"\nkey = \"/k\""),
                "tracing.certificate",
            ),
            (
                &format!("{https}\nca = \"/ca\"\ncertificate = \"/c\""),
                "tracing.key",
            ),
            ("samplingRatePerMillion = 5", "unknown field"),
        ] {
            let error = parse(text).expect_err("wrong");
            assert!(error.contains(part), "{error}");
        }
    }
}
