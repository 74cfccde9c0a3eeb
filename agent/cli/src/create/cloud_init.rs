//! What cloud-init is given.

use serde_json::{Map, Value, json};

use super::machine::{CloudInit, Machine};
use super::params::flag_error;
use crate::failure::{Failure, open_error};
use crate::output::note;

const DISK: &str = "cloudinitdisk";
const HEADER: &str = "#cloud-config";

/// Adds the volume that cloud-init reads, if any flag asks for it.
pub fn add(machine: &mut Machine, cloud_init: &CloudInit<'_>) -> Result<(), Failure> {
    let flags = cloud_init.flags;
    let is_asked = flags.password_file.is_some()
        || !flags.ssh_key.is_empty()
        || cloud_init.is_ga_given
        || flags.cloud_init_user_data.is_some()
        || flags.cloud_init_network_data.is_some();
    if !is_asked && flags.user.is_none() && !cloud_init.is_source_given {
        return Ok(());
    }
    if flags.password_file.is_some() {
        note("WARNING: --password-file: The password is stored in cleartext in the VM definition!");
    }
    if machine.volume(DISK).is_some() {
        let why = format!("there is already a volume with name \"{DISK}\"");
        return Err(Failure::Refused(why));
    }
    let member = match cloud_init.source.to_lowercase().as_str() {
        "nocloud" => "cloudInitNoCloud",
        "configdrive" => "cloudInitConfigDrive",
        "none" => {
            if is_asked {
                note(
                    "WARNING: --cloud-init: was set to none, not creating a data source although other cloud-init options were set",
                );
            }
            return Ok(());
        }
        _ => {
            let why = format!(
                "invalid cloud-init data source type \"{}\", supported values are: nocloud, configdrive, none",
                cloud_init.source
            );
            return Err(flag_error("cloud-init", why));
        }
    };
    let (source, is_empty) = source(cloud_init)?;
    if !cloud_init.is_source_given && is_empty {
        return Ok(());
    }
    machine
        .volumes
        .push(json!({(member): source, "name": DISK}));
    Ok(())
}

/// What the disk says, and whether that is nothing.
fn source(cloud_init: &CloudInit<'_>) -> Result<(Value, bool), Failure> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let mut source = Map::new();
    let network = given(&cloud_init.flags.cloud_init_network_data);
    if let Some(network) = &network {
        source.insert("networkDataBase64".to_owned(), network.as_str().into());
    }
    if let Some(user) = given(&cloud_init.flags.cloud_init_user_data) {
        source.insert("userDataBase64".to_owned(), user.into());
        return Ok((source.into(), false));
    }
    let config = config(cloud_init)?;
    let is_empty = config == HEADER && network.is_none();
    source.insert("userData".to_owned(), config.into());
    Ok((source.into(), is_empty))
}

/// User data of flags. Values stand in it as they are typed, as virtctl has it.
fn config(cloud_init: &CloudInit<'_>) -> Result<String, Failure> {
    let mut config = HEADER.to_owned();
    if let Some(user) = cloud_init
        .flags
        .user
        .as_deref()
        .filter(|user| !user.is_empty())
    {
        config.push_str(&format!("\nuser: {user}"));
    }
    if let Some(password) = password(cloud_init.flags.password_file.as_deref())? {
        config.push_str(&format!(
            "\npassword: {password}\nchpasswd: {{ expire: False }}"
        ));
    }
    if !cloud_init.keys.is_empty() {
        config.push_str("\nssh_authorized_keys:");
        for key in &cloud_init.keys {
            config.push_str(&format!("\n  - {key}"));
        }
    }
    if cloud_init.ga_manage_ssh {
        config.push_str("\nruncmd:\n  - [ setsebool, -P, 'virt_qemu_ga_manage_ssh', 'on' ]");
    }
    Ok(config)
}

fn password(path: Option<&str>) -> Result<Option<String>, Failure> {
    let Some(path) = path.filter(|path| !path.is_empty()) else {
        return Ok(None);
    };
    let text = std::fs::read_to_string(path)
        .map_err(|error| flag_error("password-file", open_error(path, &error)))?;
    let password = text.trim();
    Ok((!password.is_empty()).then(|| password.to_owned()))
}
