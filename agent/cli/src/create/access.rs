//! Access credentials of a machine: keys and passwords that are taken from Secrets.

use serde_json::{Value, json};

use super::machine::{CloudInit, Machine};
use super::params::{Params, flag_error};
use super::volumes;
use crate::failure::Failure;

const FLAG: &str = "access-cred";
const NO_USER: &str = "user cannot be specified with selected access credential type and method";

/// What a value says.
struct Credential {
    source: String,
    method: String,
    user: String,
}

/// `--access-cred`.
pub fn add(
    machine: &mut Machine,
    values: &[String],
    cloud_init: &mut CloudInit<'_>,
) -> Result<(), Failure> {
    for value in values {
        let mut params = Params::parse(FLAG, value)?;
        let form = params.text("type");
        let mut credential = Credential {
            source: params.text("src"),
            method: params.text("method"),
            user: params.text("user"),
        };
        params.end()?;
        if credential.source.is_empty() {
            return Err(flag_error(FLAG, "src must be specified"));
        }
        credential.source = volumes::own(FLAG, "secret", &credential.source)?;
        let credential = match form.to_lowercase().as_str() {
            "" | "ssh" => keys(&credential, cloud_init)?,
            "password" => password(&credential)?,
            _ => {
                let why = format!(
                    "invalid access credential type \"{form}\", supported values are: ssh, password"
                );
                return Err(flag_error(FLAG, why));
            }
        };
        machine.access_credentials.push(credential);
    }
    Ok(())
}

fn keys(credential: &Credential, cloud_init: &mut CloudInit<'_>) -> Result<Value, Failure> {
    let method = match credential.method.to_lowercase().as_str() {
        "" | "ga" => {
            let user = match credential.user.as_str() {
                "" => cloud_init.flags.user.clone().unwrap_or_default(),
                user => user.to_owned(),
            };
            if user.is_empty() {
                let why = "user must be specified with access credential ssh method ga (\"--user\" flag or param \"user\")";
                return Err(flag_error(FLAG, why));
            }
            if !cloud_init.is_ga_given {
                cloud_init.is_ga_given = true;
                cloud_init.ga_manage_ssh = true;
            }
            json!({"qemuGuestAgent": {"users": [user]}})
        }
        "nocloud" => {
            by_cloud_init(credential, cloud_init, "nocloud")?;
            json!({"noCloud": {}})
        }
        "configdrive" => {
            by_cloud_init(credential, cloud_init, "configdrive")?;
            json!({"configDrive": {}})
        }
        _ => {
            let why = format!(
                "invalid access credentials ssh method \"{}\", supported values are: ga, nocloud, configdrive",
                credential.method
            );
            return Err(flag_error(FLAG, why));
        }
    };
    Ok(json!({"sshPublicKey": {
        "propagationMethod": method,
        "source": {"secret": {"secretName": credential.source}},
    }}))
}

/// Keys that cloud-init finds where it finds the rest.
fn by_cloud_init(
    credential: &Credential,
    cloud_init: &mut CloudInit<'_>,
    source: &str,
) -> Result<(), Failure> {
    if !credential.user.is_empty() {
        return Err(flag_error(FLAG, NO_USER));
    }
    if !cloud_init.is_source_given {
        cloud_init.is_source_given = true;
        source.clone_into(&mut cloud_init.source);
    }
    if cloud_init.source.eq_ignore_ascii_case(source) {
        return Ok(());
    }
    let why = format!(
        "method param and value passed to --cloud-init have to match: {source} vs {}",
        cloud_init.source
    );
    Err(flag_error(FLAG, why))
}

fn password(credential: &Credential) -> Result<Value, Failure> {
    if !matches!(credential.method.to_lowercase().as_str(), "" | "ga") {
        let why = format!(
            "invalid access credentials password method \"{}\", supported values are: ga",
            credential.method
        );
        return Err(flag_error(FLAG, why));
    }
    if !credential.user.is_empty() {
        return Err(flag_error(FLAG, NO_USER));
    }
    Ok(json!({"userPassword": {
        "propagationMethod": {"qemuGuestAgent": {}},
        "source": {"secret": {"secretName": credential.source}},
    }}))
}
