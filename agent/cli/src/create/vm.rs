//! `kvmctl create vm`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::machine::{CloudInit, Machine};
use super::manifest::metadata;
use super::params::{flag_bool, flag_error, flag_number, split_prefixed};
use super::{access, cloud_init, csv, exclusive, imports, infer, quantity, volumes};
use crate::args::{CreateVm, Login};
use crate::failure::Failure;
use crate::names;

/// Seconds for the guest to shut down, unless said otherwise.
const GRACE_PERIOD: i64 = 180;

/// Memory of a machine that neither an instance type nor a flag gives some.
const MEMORY: &str = "512Mi";

const RUN_STRATEGIES: [&str; 5] = ["Always", "Manual", "Halted", "Once", "RerunOnFailure"];

/// The manifest that flags stand for.
pub fn manifest(args: &CreateVm, namespace: Option<&str>) -> Result<Value, Failure> {
    let mut cloud_init = cloud_init(&args.login)?;
    let inference = infer::Inference::read(&args.size)?;
    let grace_period = match &args.termination_grace_period {
        Some(text) => flag_number("termination-grace-period", text)?,
        None => GRACE_PERIOD,
    };
    exclusive::check(args)?;
    let memory = quantity::canonical(args.size.memory.as_deref().unwrap_or(MEMORY))
        .map_err(|why| flag_error("memory", why))?;
    let name = match args.name.as_deref() {
        None | Some("") => names::random("vm-")?,
        Some(name) => name.to_owned(),
    };
    let mut machine = Machine {
        name,
        run_strategy: run_strategy(args.run_strategy.as_deref())?,
        grace_period,
        memory: Some(memory),
        instancetype: None,
        preference: None,
        volumes: Vec::new(),
        disks: Vec::new(),
        boot_orders: BTreeMap::new(),
        templates: Vec::new(),
        access_credentials: Vec::new(),
    };
    if let Some(text) = &args.size.instancetype {
        machine.instancetype = Some(matcher("instancetype", text)?);
        machine.memory = None;
    }
    if let Some(text) = &args.size.preference {
        machine.preference = Some(matcher("preference", text)?);
    }
    volumes::container_disks(&mut machine, &args.volumes.volume_containerdisk)?;
    volumes::claims(&mut machine, &args.volumes.volume_pvc)?;
    imports::add(&mut machine, &args.volumes)?;
    if let Some(text) = &args.volumes.volume_sysprep {
        volumes::sysprep(&mut machine, text)?;
    }
    access::add(&mut machine, &args.login.access_cred, &mut cloud_init)?;
    cloud_init::add(&mut machine, &cloud_init)?;
    inference.add(&mut machine, &args.size)?;
    Ok(machine.into_object(namespace))
}

fn cloud_init(flags: &Login) -> Result<CloudInit<'_>, Failure> {
    let mut keys = Vec::new();
    for text in &flags.ssh_key {
        keys.extend(csv::items("ssh-key", text)?);
    }
    let ga_manage_ssh = match &flags.ga_manage_ssh {
        Some(text) => flag_bool("ga-manage-ssh", text)?,
        None => false,
    };
    Ok(CloudInit {
        flags,
        source: flags
            .cloud_init
            .clone()
            .unwrap_or_else(|| "nocloud".to_owned()),
        keys,
        ga_manage_ssh,
        is_source_given: flags.cloud_init.is_some(),
        is_ga_given: flags.ga_manage_ssh.is_some(),
    })
}

fn run_strategy(text: Option<&str>) -> Result<String, Failure> {
    let text = text.unwrap_or(RUN_STRATEGIES[0]);
    let known = RUN_STRATEGIES
        .iter()
        .find(|known| known.eq_ignore_ascii_case(text));
    let known = known.ok_or_else(|| {
        let supported = RUN_STRATEGIES.join(", ");
        let why = format!("invalid run strategy \"{text}\", supported values are: {supported}");
        flag_error("run-strategy", why)
    })?;
    Ok((*known).to_owned())
}

/// What names an instance type or a preference.
fn matcher(flag: &str, text: &str) -> Result<Value, Failure> {
    let (kind, name) = split_prefixed(flag, "", text)?;
    let kind = kind.to_lowercase();
    let kinds = [
        format!("virtualmachine{flag}"),
        format!("virtualmachinecluster{flag}"),
    ];
    if kind.is_empty() {
        return Ok(json!({"name": name}));
    }
    if !kinds.contains(&kind) {
        let supported = kinds.join(", ");
        let why = format!("invalid {flag} kind \"{kind}\", supported values are: {supported}");
        return Err(flag_error(flag, why));
    }
    Ok(json!({"kind": kind, "name": name}))
}

impl Machine {
    fn into_object(self, namespace: Option<&str>) -> Value {
        let mut devices = Map::new();
        insert(&mut devices, "disks", list(self.disks));
        let mut domain = Map::new();
        domain.insert("devices".to_owned(), devices.into());
        insert(
            &mut domain,
            "memory",
            self.memory.map(|memory| json!({"guest": memory})),
        );
        domain.insert("resources".to_owned(), json!({}));
        let mut guest = Map::new();
        insert(
            &mut guest,
            "accessCredentials",
            list(self.access_credentials),
        );
        guest.insert("domain".to_owned(), domain.into());
        let grace_period = self.grace_period.into();
        guest.insert("terminationGracePeriodSeconds".to_owned(), grace_period);
        insert(&mut guest, "volumes", list(self.volumes));
        let mut spec = Map::new();
        insert(&mut spec, "dataVolumeTemplates", list(self.templates));
        insert(&mut spec, "instancetype", self.instancetype);
        insert(&mut spec, "preference", self.preference);
        spec.insert("runStrategy".to_owned(), self.run_strategy.into());
        spec.insert(
            "template".to_owned(),
            json!({"metadata": metadata("", None), "spec": guest}),
        );
        json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": metadata(&self.name, namespace),
            "spec": spec,
            "status": {},
        })
    }
}

fn insert(members: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        members.insert(name.to_owned(), value);
    }
}

fn list(items: Vec<Value>) -> Option<Value> {
    (!items.is_empty()).then(|| items.into())
}
