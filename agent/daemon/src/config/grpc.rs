//! `[grpc]` and `[[grants]]`: where clients come in and what they may do.

pub(super) mod check;

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

/// `[grpc]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Grpc {
    /// Address and port for clients with certificates; none when it is left out.
    pub(crate) listen: Option<SocketAddr>,
    /// The agent's certificate in PEM, with those between it and a root.
    pub(crate) certificate: Option<PathBuf>,
    /// Private key of `certificate`, in PEM.
    pub(crate) key: Option<PathBuf>,
    /// Who signs certificates of clients.
    pub(crate) client_ca: Option<PathBuf>,
    /// What of these certificates was withdrawn.
    pub(crate) client_crl: Option<PathBuf>,
    /// Connections that the holder of one certificate may have.
    pub(crate) max_connections_per_client: usize,
}

impl Default for Grpc {
    fn default() -> Self {
        Self {
            listen: None,
            certificate: None,
            key: None,
            client_ca: None,
            client_crl: None,
            max_connections_per_client: 64,
        }
    }
}

/// One of `[[grants]]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grant {
    pub(crate) role: Role,
    /// Everywhere when it is left out.
    pub(crate) namespaces: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) users: Vec<String>,
    #[serde(default)]
    pub(crate) groups: Vec<String>,
    #[serde(default)]
    pub(crate) common_names: Vec<String>,
    #[serde(default)]
    pub(crate) organizations: Vec<String>,
    #[serde(default)]
    pub(crate) alternative_names: Vec<String>,
}

/// What callers may do; each has what those before it have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    View,
    Console,
    Operate,
    Admin,
}

impl Grant {
    /// The lists of who is meant, by name.
    fn lists(&self) -> [(&'static str, &Vec<String>); 5] {
        [
            ("users", &self.users),
            ("groups", &self.groups),
            ("common_names", &self.common_names),
            ("organizations", &self.organizations),
            ("alternative_names", &self.alternative_names),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("/etc/kvmlet/kvmlet.toml"), text).map_err(|error| error.to_string())
    }

    const TLS: &str =
        "[grpc]\nlisten = \"[::]:9774\"\ncertificate = \"/c\"\nkey = \"/k\"\nclient_ca = \"/a\"\n";

    #[test]
    fn nothing_listens_on_tcp_unless_it_is_configured_with_certificates() {
        assert_eq!(parse("").expect("is fine").grpc.listen, None);
        let config = parse(TLS).expect("is fine");
        assert_eq!(config.grpc.listen, "[::]:9774".parse().ok());
        for missing in ["certificate", "key", "client_ca"] {
            let lines: Vec<_> = TLS
                .lines()
                .filter(|line| !line.starts_with(missing))
                .collect();
            let error = parse(&lines.join("\n")).expect_err("one is missing");
            assert!(error.contains(&format!("grpc.{missing}")), "{error}");
        }
        let error = parse(&TLS.replace("/k", "k")).expect_err("relative");
        assert!(
            error.contains("grpc.key") && error.contains("absolute"),
            "{error}"
        );
        let error = parse(&format!("{TLS}client_crl = \"crl\"")).expect_err("relative");
        assert!(error.contains("grpc.client_crl"), "{error}");
    }

    #[test]
    fn grants_name_a_role_and_somebody() {
        let config = parse(
            "[[grants]]\nrole = \"operate\"\nnamespaces = [\"a\"]\nusers = [\"alice\"]\n\
             [[grants]]\nrole = \"view\"\norganizations = [\"ops\"]",
        );
        let grants = config.expect("is fine").grants;
        assert_eq!(
            (grants[0].role, grants[1].role),
            (Role::Operate, Role::View)
        );
        for (text, part) in [
            ("[[grants]]\nrole = \"view\"", "grants[0].role"),
            (
                "[[grants]]\nrole = \"boss\"\nusers = [\"a\"]",
                "unknown variant",
            ),
            (
                "[[grants]]\nrole = \"view\"\nusers = [\"\"]",
                "grants[0].users",
            ),
            (
                "[[grants]]\nrole = \"view\"\nusers = [\"a\"]\nnamespaces = []",
                "grants[0].namespaces",
            ),
            ("[[grants]]\nrole = \"view\"\nuser = [\"a\"]", "user"),
        ] {
            let error = parse(text).expect_err("wrong");
            assert!(error.contains(part), "{error}");
        }
    }
}
