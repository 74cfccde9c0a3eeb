//! Volumes of a machine that are there already: disks in images, claims, answers for Windows.

use serde_json::{Value, json};

use super::machine::Machine;
use super::params::{Params, check_label, flag_error, split_prefixed};
use crate::failure::Failure;

/// `--volume-containerdisk`.
pub fn container_disks(machine: &mut Machine, values: &[String]) -> Result<(), Failure> {
    const FLAG: &str = "volume-containerdisk";
    for (index, value) in values.iter().enumerate() {
        let source = Source::read(FLAG, value)?;
        let default = format!("{}-containerdisk-{index}", machine.name);
        let volume = json!({"containerDisk": {"image": source.source}});
        add(machine, FLAG, source, (default, volume))?;
    }
    Ok(())
}

/// `--volume-pvc`.
pub fn claims(machine: &mut Machine, values: &[String]) -> Result<(), Failure> {
    const FLAG: &str = "volume-pvc";
    for value in values {
        let source = Source::read(FLAG, value)?;
        let name = own(FLAG, "pvc", &source.source)?;
        let volume = json!({"persistentVolumeClaim": {"claimName": name}});
        add(machine, FLAG, source, (name, volume))?;
    }
    Ok(())
}

/// What names a volume.
struct Source {
    name: String,
    source: String,
    boot_order: Option<u32>,
}

impl Source {
    fn read(flag: &'static str, value: &str) -> Result<Self, Failure> {
        let mut params = Params::parse(flag, value)?;
        let source = Self {
            name: params.text("name"),
            source: params.text("src"),
            boot_order: params.number("bootorder")?,
        };
        params.end()?;
        if source.source.is_empty() {
            return Err(flag_error(flag, "src must be specified"));
        }
        Ok(source)
    }
}

/// Adds a volume under its own name, or the one that it has otherwise.
fn add(
    machine: &mut Machine,
    flag: &str,
    source: Source,
    (default, mut volume): (String, Value),
) -> Result<(), Failure> {
    let name = if source.name.is_empty() {
        default
    } else {
        source.name
    };
    check_label(flag, &name)?;
    machine.check_new(flag, &name)?;
    volume["name"] = name.as_str().into();
    machine.volumes.push(volume);
    machine.add_disk(flag, &name, source.boot_order)
}

/// A name of an object in the machine's own namespace.
pub fn own(flag: &str, what: &str, text: &str) -> Result<String, Failure> {
    let (namespace, name) = split_prefixed(flag, "src invalid: ", text)?;
    if namespace.is_empty() {
        return Ok(name);
    }
    let why = format!("not allowed to specify namespace of {what} \"{name}\"");
    Err(flag_error(flag, why))
}

/// `--volume-sysprep`.
pub fn sysprep(machine: &mut Machine, value: &str) -> Result<(), Failure> {
    const FLAG: &str = "volume-sysprep";
    const DISK: &str = "sysprepdisk";
    let mut params = Params::parse(FLAG, value)?;
    let (source, form) = (params.text("src"), params.text("type"));
    params.end()?;
    if source.is_empty() {
        return Err(flag_error(FLAG, "src must be specified"));
    }
    let name = own(FLAG, "configmap or secret", &source)?;
    machine.check_new(FLAG, DISK)?;
    let member = match form.to_lowercase().as_str() {
        "" | "configmap" => "configMap",
        "secret" => "secret",
        _ => {
            let why = format!(
                "invalid sysprep source type \"{form}\", supported values are: configmap, secret"
            );
            return Err(flag_error(FLAG, why));
        }
    };
    let volume = json!({"name": DISK, "sysprep": {(member): {"name": name}}});
    machine.volumes.push(volume);
    Ok(())
}
