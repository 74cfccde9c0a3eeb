//! Volumes that are filled for the machine: DataVolumes.

use serde_json::{Map, Value, json};

use super::machine::Machine;
use super::manifest::metadata;
use super::params::{Params, check_label, flag_error, split_prefixed};
use crate::args::Volumes;
use crate::failure::Failure;
use crate::names;
use crate::output::note;

const FLAG: &str = "volume-import";

/// `--volume-import` and the flags that came before it.
pub fn add(machine: &mut Machine, flags: &Volumes) -> Result<(), Failure> {
    let mut imports = flags.volume_import.clone();
    for (flag, form, values) in [
        ("volume-datasource", "ds", &flags.volume_datasource),
        ("volume-clone-pvc", "pvc", &flags.volume_clone_pvc),
        ("volume-blank", "blank", &flags.volume_blank),
    ] {
        if values.is_empty() {
            continue;
        }
        note(&format!(
            "Flag --{flag} has been deprecated, use flag --volume-import instead"
        ));
        for value in values {
            if value.is_empty() {
                return Err(flag_error(FLAG, "params may not be empty"));
            }
            // Each goes before those that are there, as virtctl has it.
            imports.insert(0, format!("type:{form},{value}"));
        }
    }
    for value in &imports {
        add_one(machine, value)?;
    }
    Ok(())
}

fn add_one(machine: &mut Machine, value: &str) -> Result<(), Failure> {
    let params = Params::parse(FLAG, value)?;
    let missing = |name: &str| flag_error(FLAG, format!("{name} must be specified"));
    let form = params
        .get("type")
        .ok_or_else(|| missing("type"))?
        .to_owned();
    let name = params.get("name").map(str::to_owned);
    let has_size = params.get("size").is_some();
    let Imported {
        source,
        size,
        boot_order,
    } = Imported::read(&form, params)?;
    if !has_size && !matches!(form.as_str(), "pvc" | "snapshot" | "ds") {
        return Err(missing("size"));
    }
    let name = match name {
        Some(name) => name,
        None => names::random("imported-volume-")?,
    };
    check_label(FLAG, &name)?;
    machine.check_new(FLAG, &name)?;
    let resources = match size {
        Some(size) => json!({"requests": {"storage": size}}),
        None => json!({}),
    };
    let (member, source) = source;
    machine.templates.push(json!({
        "metadata": metadata(&name, None),
        "spec": {(member): source, "storage": {"resources": resources}},
    }));
    let volume = json!({"dataVolume": {"name": name}, "name": name});
    machine.volumes.push(volume);
    machine.add_disk(FLAG, &name, boot_order)
}

/// What a value says.
struct Imported {
    /// `source` or `sourceRef`, and what it is.
    source: (&'static str, Value),
    size: Option<String>,
    boot_order: Option<u32>,
}

/// Members of a source that are texts, by the parameters that give them; those that cannot be left out last.
struct Form {
    member: &'static str,
    texts: &'static [(&'static str, &'static str)],
    lists: &'static [(&'static str, &'static str)],
    needed: &'static [&'static str],
}

const GCS: Form = Form {
    member: "gcs",
    texts: &[("secretref", "secretRef"), ("url", "url")],
    lists: &[],
    needed: &["url"],
};

const HTTP: Form = Form {
    member: "http",
    texts: &[
        ("certconfigmap", "certConfigMap"),
        ("secretref", "secretRef"),
        ("url", "url"),
    ],
    lists: &[
        ("extraheaders", "extraHeaders"),
        ("secretextraheaders", "secretExtraHeaders"),
    ],
    needed: &["url"],
};

const IMAGEIO: Form = Form {
    member: "imageio",
    texts: &[
        ("certconfigmap", "certConfigMap"),
        ("diskid", "diskId"),
        ("secretref", "secretRef"),
        ("url", "url"),
    ],
    lists: &[],
    needed: &[],
};

const REGISTRY: Form = Form {
    member: "registry",
    texts: &[
        ("certconfigmap", "certConfigMap"),
        ("imagestream", "imageStream"),
        ("pullmethod", "pullMethod"),
        ("secretref", "secretRef"),
        ("url", "url"),
    ],
    lists: &[],
    needed: &[],
};

const S3: Form = Form {
    member: "s3",
    texts: &[
        ("certconfigmap", "certConfigMap"),
        ("secretref", "secretRef"),
        ("url", "url"),
    ],
    lists: &[],
    needed: &["url"],
};

const VDDK: Form = Form {
    member: "vddk",
    texts: &[
        ("backingfile", "backingFile"),
        ("initimageurl", "initImageURL"),
        ("secretref", "secretRef"),
        ("thumbprint", "thumbprint"),
        ("url", "url"),
        ("uuid", "uuid"),
    ],
    lists: &[],
    needed: &["url", "uuid", "thumbprint", "secretref", "backingfile"],
};

impl Imported {
    fn read(form: &str, mut params: Params) -> Result<Self, Failure> {
        let fields = match form {
            "blank" => None,
            "pvc" | "snapshot" | "ds" => return Self::named(form, params),
            "gcs" => Some(&GCS),
            "http" => Some(&HTTP),
            "imageio" => Some(&IMAGEIO),
            "registry" => Some(&REGISTRY),
            "s3" => Some(&S3),
            "vddk" => Some(&VDDK),
            _ => {
                let why =
                    format!("invalid volume import type \"{form}\", see help for supported values");
                return Err(flag_error(FLAG, why));
            }
        };
        let Some(fields) = fields else {
            let (size, boot_order) = common(params)?;
            return Ok(Self {
                source: ("source", json!({"blank": {}})),
                size,
                boot_order,
            });
        };
        let mut members = Map::new();
        for (param, member) in fields.lists {
            if let Some(list) = params.list(param) {
                members.insert((*member).to_owned(), list.into());
            }
        }
        for (param, member) in fields.texts {
            let text = params.text(param);
            if !text.is_empty() {
                members.insert((*member).to_owned(), text.into());
            }
        }
        let (size, boot_order) = common(params)?;
        fields.check(&members)?;
        Ok(Self {
            source: ("source", json!({(fields.member): members})),
            size,
            boot_order,
        })
    }

    /// One that names an object of the cluster.
    fn named(form: &str, mut params: Params) -> Result<Self, Failure> {
        let source = params.text("src");
        let (size, boot_order) = common(params)?;
        if source.is_empty() {
            return Err(flag_error(FLAG, "src must be specified"));
        }
        let (namespace, name) = split_prefixed(FLAG, "src invalid: ", &source)?;
        let source = match (form, namespace.as_str()) {
            ("ds", "") => ("sourceRef", json!({"kind": "DataSource", "name": name})),
            ("ds", namespace) => {
                let reference = json!({"kind": "DataSource", "name": name, "namespace": namespace});
                ("sourceRef", reference)
            }
            (form, "") => {
                let why = format!("namespace of {form} \"{name}\" must be specified");
                return Err(flag_error(FLAG, why));
            }
            (form, namespace) => {
                let source = json!({(form): {"name": name, "namespace": namespace}});
                ("source", source)
            }
        };
        Ok(Self {
            source,
            size,
            boot_order,
        })
    }
}

/// The parameters that all types have; no others may be left then.
fn common(mut params: Params) -> Result<(Option<String>, Option<u32>), Failure> {
    params.text("type");
    params.text("name");
    let size = params.quantity("size")?;
    let boot_order = params.number("bootorder")?;
    params.end()?;
    Ok((size, boot_order))
}

impl Form {
    /// Refuses a source without what it needs.
    fn check(&self, members: &Map<String, Value>) -> Result<(), Failure> {
        let has = |param: &str| {
            let member = self.texts.iter().find(|(name, _)| *name == param);
            member.is_some_and(|(_, member)| members.contains_key(*member))
        };
        let why = match self.member {
            "imageio" if !has("url") || !has("diskid") => {
                "url and diskid are both required with imageio volume source".to_owned()
            }
            "registry" if !matches!(pull_method(members), None | Some("pod" | "node")) => {
                "pullmethod must be set to pod or node".to_owned()
            }
            "registry" if has("url") == has("imagestream") => {
                "exactly one of url or imagestream must be defined".to_owned()
            }
            member => match self.needed.iter().find(|param| !has(param)) {
                Some(param) => format!("{param} is required with {member} volume source"),
                None => return Ok(()),
            },
        };
        Err(flag_error(FLAG, why))
    }
}

fn pull_method(members: &Map<String, Value>) -> Option<&str> {
    members.get("pullMethod")?.as_str()
}
