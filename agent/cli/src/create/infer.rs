//! Instance type and preference that are taken from the labels of a volume.

use serde_json::{Value, json};

use super::machine::Machine;
use super::params::flag_bool;
use crate::args::Size;
use crate::failure::Failure;

/// What flags say of it.
pub struct Inference {
    instancetype: bool,
    preference: bool,
}

impl Inference {
    pub fn read(size: &Size) -> Result<Self, Failure> {
        let read = |flag: &str, text: &Option<String>| match text {
            Some(text) => flag_bool(flag, text),
            // Where nobody says otherwise it is tried.
            None => Ok(true),
        };
        Ok(Self {
            instancetype: read("infer-instancetype", &size.infer_instancetype)?,
            preference: read("infer-preference", &size.infer_preference)?,
        })
    }

    /// Sets what can be inferred. That it cannot be matters only where it was asked for.
    pub fn add(self, machine: &mut Machine, size: &Size) -> Result<(), Failure> {
        let is_named = size
            .instancetype
            .as_deref()
            .is_some_and(|name| !name.is_empty());
        if self.instancetype && !is_named && size.memory.is_none() {
            let from = size.infer_instancetype_from.as_deref();
            let is_asked = from.is_some() || size.infer_instancetype.is_some();
            machine.instancetype =
                inferred(machine, from, is_asked)?.or(machine.instancetype.take());
            if machine.instancetype.is_some() && is_asked {
                machine.memory = None;
            }
        }
        let is_named = size
            .preference
            .as_deref()
            .is_some_and(|name| !name.is_empty());
        if self.preference && !is_named {
            let from = size.infer_preference_from.as_deref();
            let is_asked = from.is_some() || size.infer_preference.is_some();
            machine.preference = inferred(machine, from, is_asked)?.or(machine.preference.take());
        }
        Ok(())
    }
}

/// The matcher. Without being asked for, inference must not fail what else is fine: the node ignores its failure.
fn inferred(
    machine: &Machine,
    from: Option<&str>,
    is_asked: bool,
) -> Result<Option<Value>, Failure> {
    match (volume(machine, from), is_asked) {
        (Ok(volume), true) => Ok(Some(json!({"inferFromVolume": volume}))),
        (Ok(volume), false) => Ok(Some(json!({
            "inferFromVolume": volume,
            "inferFromVolumeFailurePolicy": "Ignore",
        }))),
        (Err(why), true) => Err(Failure::Refused(why.to_owned())),
        (Err(_), false) => Ok(None),
    }
}

/// The volume that labels are taken from: the one that is named, else the one that boots first.
fn volume(machine: &Machine, from: Option<&str>) -> Result<String, String> {
    let first = machine
        .volumes
        .first()
        .and_then(|volume| volume["name"].as_str());
    let name = match from.filter(|name| !name.is_empty()) {
        Some(name) => name,
        None => first
            .map(|first| {
                machine
                    .boot_orders
                    .values()
                    .next()
                    .map_or(first, String::as_str)
            })
            .ok_or("at least one volume is needed to infer an instance type or preference")?,
    };
    let volume = machine
        .volume(name)
        .ok_or_else(|| format!("there is no volume with name \"{name}\""))?;
    if volume.get("persistentVolumeClaim").is_some() {
        return Ok(name.to_owned());
    }
    if volume.get("dataVolume").is_none() {
        return Err("inference of instancetype or preference works only with datasources, datavolumes or pvcs".to_owned());
    }
    let template = machine
        .templates
        .iter()
        .find(|template| template["metadata"]["name"] == name);
    let has_labels = template.is_none_or(|template| {
        let spec = &template["spec"];
        let is_source = |member| {
            spec.pointer("/source")
                .is_some_and(|it| it.get(member).is_some())
        };
        spec.get("sourceRef").is_some()
            || ["pvc", "registry", "snapshot"].into_iter().any(is_source)
    });
    if has_labels {
        return Ok(name.to_owned());
    }
    Err("this datavolume is not valid to infer an instancetype or preference from (source needs to be PVC, Registry or Snapshot, sourceRef needs to be DataSource)".to_owned())
}
