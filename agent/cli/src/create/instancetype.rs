//! `kvmctl create instancetype`.

use serde_json::{Map, Value, json};

use super::manifest::{metadata, object};
use super::params::{Params, flag_bool, flag_error, flag_number};
use super::quantity;
use crate::args::CreateInstancetype;
use crate::failure::Failure;
use crate::names;

/// The manifest that flags stand for.
pub fn manifest(args: &CreateInstancetype, namespace: Option<&str>) -> Result<Value, Failure> {
    let cpu: Option<u32> = match &args.cpu {
        Some(text) => Some(flag_number("cpu", text)?),
        None => None,
    };
    let is_namespaced = is_namespaced(args.namespaced.as_deref(), namespace)?;
    let (Some(cpu), Some(memory)) = (cpu, &args.memory) else {
        let missing = [("cpu", cpu.is_none()), ("memory", args.memory.is_none())];
        let missing = missing.iter().filter(|(_, is_missing)| *is_missing);
        let missing: Vec<String> = missing.map(|(name, _)| format!("\"{name}\"")).collect();
        let text = format!("required flag(s) {} not set", missing.join(", "));
        return Err(Failure::Refused(text));
    };
    let memory = quantity::canonical(memory).map_err(|why| Failure::Refused(why.to_owned()))?;
    if cpu == 0 {
        let text = "cpu value must be greater than zero".to_owned();
        return Err(Failure::Refused(text));
    }
    let mut spec = Map::new();
    spec.insert("cpu".to_owned(), json!({"guest": cpu}));
    if !args.gpu.is_empty() {
        spec.insert("gpus".to_owned(), devices("gpu", &args.gpu)?);
    }
    if !args.hostdevice.is_empty() {
        let devices = devices("hostdevice", &args.hostdevice)?;
        spec.insert("hostDevices".to_owned(), devices);
    }
    match args.iothreadspolicy.as_deref() {
        None => {}
        Some(policy @ ("auto" | "shared")) => {
            spec.insert("ioThreadsPolicy".to_owned(), policy.into());
        }
        Some(_) => {
            let why = "IOThread must be of value auto or shared";
            return Err(flag_error("iothreadspolicy", why));
        }
    }
    spec.insert("memory".to_owned(), json!({"guest": memory}));
    let (kind, prefix) = if is_namespaced {
        ("VirtualMachineInstancetype", "instancetype-")
    } else {
        ("VirtualMachineClusterInstancetype", "clusterinstancetype-")
    };
    let name = match &args.name {
        Some(name) => name.clone(),
        None => names::random(prefix)?,
    };
    Ok(object(kind, metadata(&name, namespace), spec.into()))
}

/// Whether an object is one of a namespace: where the flag or a namespace says so.
pub fn is_namespaced(flag: Option<&str>, namespace: Option<&str>) -> Result<bool, Failure> {
    let is_asked = match flag {
        Some(text) => flag_bool("namespaced", text)?,
        None => false,
    };
    Ok(is_asked || namespace.is_some())
}

fn devices(flag: &'static str, values: &[String]) -> Result<Value, Failure> {
    let device = |value: &String| {
        let mut params = Params::parse(flag, value)?;
        let (name, device) = (params.text("name"), params.text("devicename"));
        params.end()?;
        match (name.as_str(), device.as_str()) {
            ("", _) => Err(flag_error(flag, "name must be specified")),
            (_, "") => Err(flag_error(flag, "deviceName must be specified")),
            _ => Ok(json!({"deviceName": device, "name": name})),
        }
    };
    values.iter().map(device).collect()
}
