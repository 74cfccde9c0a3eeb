//! What a client's certificate says of its holder.

use std::fmt;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// Names longer than this are none, and no more of one kind than [`MOST_NAMES`] are read.
const LONGEST_NAME: usize = 256;
const MOST_NAMES: usize = 32;

/// The holder of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subject {
    /// CN of the subject.
    pub(crate) common_names: Vec<String>,
    /// O of the subject.
    pub(crate) organizations: Vec<String>,
    /// DNS names, URIs and e-mail addresses of the extension `subjectAltName` (RFC 5280, 4.2.1.6).
    pub(crate) alternative_names: Vec<String>,
}

impl Subject {
    /// Reads a certificate in DER. Its signature is for TLS to judge; here only names are read. One that
    /// names nobody is nobody's.
    pub(crate) fn of_certificate(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let name = certificate.subject();
        let text = |entry: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            entry.as_str().ok().and_then(legible)
        };
        let mut subject = Self {
            common_names: name
                .iter_common_name()
                .filter_map(text)
                .take(MOST_NAMES)
                .collect(),
            organizations: name
                .iter_organization()
                .filter_map(text)
                .take(MOST_NAMES)
                .collect(),
            alternative_names: Vec::new(),
        };
        if let Ok(Some(extension)) = certificate.subject_alternative_name() {
            let names = extension.value.general_names.iter();
            let names = names.filter_map(|name| match name {
                GeneralName::DNSName(name)
                | GeneralName::RFC822Name(name)
                | GeneralName::URI(name) => legible(name),
                _ => None,
            });
            subject.alternative_names = names.take(MOST_NAMES).collect();
        }
        (subject != Self::default()).then_some(subject)
    }
}

/// A name that can be shown and compared: anything else may look like another on a terminal.
fn legible(name: &str) -> Option<String> {
    let plain = (1..=LONGEST_NAME).contains(&name.len()) && !name.contains(char::is_control);
    plain.then(|| name.to_owned())
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cn = self.common_names.iter().map(|name| format!("CN={name}"));
        let o = self.organizations.iter().map(|name| format!("O={name}"));
        let mut parts: Vec<String> = cn.chain(o).collect();
        if parts.is_empty() {
            parts.extend(self.alternative_names.first().cloned());
        }
        write!(f, "certificate {}", parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use tokio_rustls::rustls::pki_types::CertificateDer;
    use tokio_rustls::rustls::pki_types::pem::PemObject;

    use super::*;

    /// CN=alice, O=team-a, O=ops, with a DNS name, a URI and an address.
    const PEM: &[u8] = include_bytes!("../../tests/certificates/alice.pem");

    #[test]
    fn names_are_read_from_subject_and_extension() {
        let der = CertificateDer::from_pem_slice(PEM).expect("PEM");
        let subject = Subject::of_certificate(&der).expect("has names");
        assert_eq!(subject.common_names, ["alice"]);
        assert_eq!(subject.organizations, ["team-a", "ops"]);
        assert_eq!(
            subject.alternative_names,
            ["ci.example", "spiffe://example/ci", "alice@example.com"]
        );
        assert_eq!(subject.to_string(), "certificate CN=alice, O=team-a, O=ops");
    }

    #[test]
    fn what_is_no_certificate_is_nobodys() {
        let der = CertificateDer::from_pem_slice(PEM).expect("PEM");
        for cut in 0..der.len() {
            assert_eq!(Subject::of_certificate(&der[..cut]), None);
        }
        assert_eq!(legible("a\nb"), None);
        assert_eq!(legible(&"a".repeat(LONGEST_NAME + 1)), None);
    }
}
