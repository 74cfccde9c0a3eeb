//! An authority that signs certificates for a test, made by OpenSSL as an operator would make it.

use crate::commands::Commands;

/// Where a machine under test has its certificates.
pub const DIRECTORY: &str = "/run/tls";

/// An authority on a machine under test. `NAME.crt` and `NAME.key` are in [`DIRECTORY`].
#[derive(Debug)]
pub struct Authority<'m, M: Commands> {
    machine: &'m M,
    name: &'static str,
}

impl<'m, M: Commands> Authority<'m, M> {
    /// Makes one.
    ///
    /// # Errors
    /// When the machine refuses.
    pub fn new(machine: &'m M, name: &'static str) -> anyhow::Result<Self> {
        machine.sh(&format!(
            "mkdir -p {DIRECTORY} && cd {DIRECTORY} && openssl req -x509 -days 2 -nodes -newkey ec -pkeyopt \
             ec_paramgen_curve:prime256v1 -subj /CN={name} -keyout {name}.key -out {name}.crt 2>&1 && chmod 644 *"
        ))?;
        Ok(Self { machine, name })
    }

    /// Signs a certificate of `subject`, such as `/CN=alice`, with alternative names such as
    /// `DNS:localhost,IP:127.0.0.1`.
    ///
    /// # Errors
    /// When the machine refuses.
    pub fn sign(&self, name: &str, subject: &str, alternative: &str) -> anyhow::Result<()> {
        let authority = self.name;
        let extension = if alternative.is_empty() {
            String::new()
        } else {
            format!("subjectAltName={alternative}\\n")
        };
        let request = request(name, subject);
        self.machine
            .sh(&format!(
                "{request} && printf 'basicConstraints=CA:FALSE\\n{extension}' > {name}.ext && \
                 openssl x509 -req -days 2 -in {name}.csr -CA {authority}.crt -CAkey {authority}.key \
                 -CAcreateserial -extfile {name}.ext -out {name}.crt 2>&1 && chmod 644 {name}.*"
            ))
            .map(drop)
    }

    /// Signs a certificate of `subject`, `/O=...` with `/CN=...`, which is good between two times that `date` understands, such
    /// as `-1 day` and `+20 seconds`.
    ///
    /// # Errors
    /// When the machine refuses.
    pub fn sign_between(
        &self,
        name: &str,
        subject: &str,
        (from, until): (&str, &str),
    ) -> anyhow::Result<()> {
        let authority = self.name;
        let request = request(name, subject);
        let date = |words| format!("$(date -u -d '{words}' +%Y%m%d%H%M%SZ)");
        let (from, until) = (date(from), date(until));
        self.machine
            .sh(&format!(
                "{request} && touch {name}.index && printf '[ca]\ndefault_ca=d\n[d]\ndatabase={name}.index\n\
                 new_certs_dir=.\nserial={name}.serial\ndefault_md=sha256\npolicy=p\n[p]\norganizationName=supplied\n\
                 commonName=supplied\n' >{name}.cnf && printf 'basicConstraints=CA:FALSE\n' >{name}.ext && \
                 openssl ca -batch -notext -create_serial -config {name}.cnf -cert {authority}.crt \
                 -keyfile {authority}.key -startdate {from} -enddate {until} -extfile {name}.ext \
                 -in {name}.csr -out {name}.crt 2>&1 && chmod 644 {name}.*"
            ))
            .map(drop)
    }

    /// Withdraws certificates that it signed, in addition to those before, and writes the list, `AUTHORITY.crl`, as one
    /// file that replaces the one before.
    ///
    /// # Errors
    /// When the machine refuses.
    pub fn withdraw(&self, names: &[&str]) -> anyhow::Result<()> {
        let authority = self.name;
        let tool = format!(
            "openssl ca -batch -config {authority}.cnf -cert {authority}.crt -keyfile {authority}.key"
        );
        let revoked: String = names
            .iter()
            .map(|name| format!("{tool} -revoke {name}.crt && "))
            .collect();
        self.machine
            .sh(&format!(
                "cd {DIRECTORY} && touch {authority}.index && \
                 {{ test -e {authority}.number || echo 01 > {authority}.number; }} && \
                 printf '[ca]\ndefault_ca=d\n[d]\ndatabase={authority}.index\ncrlnumber={authority}.number\n\
                 default_md=sha256\ndefault_crl_days=2\ncrl_extensions=e\n[e]\nauthorityKeyIdentifier=keyid:always\n' \
                 > {authority}.cnf && ({revoked}{tool} -gencrl -out {authority}.new) 2>&1 && \
                 mv {authority}.new {authority}.crl && chmod 644 {authority}.crl"
            ))
            .map(drop)
    }

    /// The options by which `kvmctl` shows the certificate `name` to the agent at `server`.
    #[must_use]
    pub fn options(&self, name: &str, server: &str) -> String {
        format!(
            "--server {server} --cert {DIRECTORY}/{name}.crt --key {DIRECTORY}/{name}.key --cacert {DIRECTORY}/{}.crt",
            self.name
        )
    }
}

/// The commands that make a key and have it ask for a certificate.
fn request(name: &str, subject: &str) -> String {
    format!(
        "cd {DIRECTORY} && openssl req -new -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 \
         -subj '{subject}' -keyout {name}.key -out {name}.csr 2>&1"
    )
}
