//! Rows of VirtualMachines: each with its state, and with what its guest uses while it has one.

use std::collections::BTreeMap;

use proto_node::node::ListObjectsRequest;
use serde_json::Value;

use super::rates::Row;
use crate::client::Client;
use crate::failure::Failure;
use crate::objects::json::read;
use crate::resource::Resource;
use crate::text::text;

/// Kind in manifests.
const KIND: &str = "VirtualMachine";

/// Which rows `top` shows: those of VMIs or of VirtualMachines, all or some.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Of {
    /// VirtualMachines, and not VMIs.
    pub machines: bool,
    /// Those of these names; all when there are none.
    pub names: Vec<String>,
}

impl Of {
    /// Reads `[TYPE [NAME...]]` and `TYPE/NAME`.
    pub fn parse(words: &[String]) -> Result<Self, Failure> {
        let Some((first, rest)) = words.split_first() else {
            return Ok(Self::default());
        };
        let (kind, name) = match first.split_once('/') {
            Some((kind, name)) => (kind, Some(name.to_owned())),
            None => (first.as_str(), None),
        };
        let lower = kind.to_lowercase();
        let short = lower.strip_suffix(".kubevirt.io").unwrap_or(&lower);
        let machines = match short {
            "vm" | "vms" | "virtualmachine" | "virtualmachines" => true,
            _ if matches!(Resource::parse(kind), Ok(Resource::Vmi)) => false,
            _ => {
                return Err(Failure::Usage(format!(
                    "{kind:?}: top shows vm and vmi, and may be given names after that"
                )));
            }
        };
        let names = name.into_iter().chain(rest.iter().cloned()).collect();
        Ok(Self { machines, names })
    }

    /// The rows that are wanted.
    ///
    /// # Errors
    /// One of a name that is not there.
    pub fn choose(&self, mut rows: Vec<Row>) -> Result<Vec<Row>, Failure> {
        if self.names.is_empty() {
            return Ok(rows);
        }
        let is_missing = |name: &&String| !rows.iter().any(|row| row.name == **name);
        if let Some(missing) = self.names.iter().find(is_missing) {
            let kind = if self.machines { "vm" } else { "vmi" };
            return Err(Failure::refused(format!(
                "no {kind} {missing:?} uses anything here"
            )));
        }
        rows.retain(|row| self.names.contains(&row.name));
        Ok(rows)
    }
}

/// The machines of a namespace, or of all where that is empty.
pub async fn list(client: &mut Client, namespace: &str) -> Result<Vec<Value>, Failure> {
    let request = ListObjectsRequest {
        kind: KIND.to_owned(),
        namespace: namespace.to_owned(),
        ..ListObjectsRequest::default()
    };
    let listed = client.objects().list_objects(request).await;
    let listed = listed.map_err(|status| Failure::of_status(&status, KIND, "", client.address()));
    let items = listed?.into_inner().items;
    items.iter().map(|item| read(item)).collect()
}

/// A row for each machine. Its guest bears its name.
pub fn rows(machines: &[Value], guests: Vec<Row>) -> Vec<Row> {
    let mut guests: BTreeMap<(String, String), Row> = guests
        .into_iter()
        .map(|row| ((row.namespace.clone(), row.name.clone()), row))
        .collect();
    let row = |machine: &Value| {
        let (namespace, name) = (
            text(machine, "/metadata/namespace"),
            text(machine, "/metadata/name"),
        );
        // A VMI of its name may be another's.
        let is_created = machine.pointer("/status/created") == Some(&Value::Bool(true));
        let guest = guests.remove(&(namespace.clone(), name.clone()));
        let state = Some(text(machine, "/status/printableStatus"));
        match guest.filter(|_| is_created) {
            Some(guest) => Row { state, ..guest },
            None => Row {
                namespace,
                name,
                state,
                has_guest: false,
                ..Row::default()
            },
        }
    };
    machines.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn guest(name: &str) -> Row {
        Row {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            cpus: 0.5,
            has_guest: true,
            ..Row::default()
        }
    }

    #[test]
    fn a_machine_has_what_its_guest_uses_and_its_state_without_one() {
        let machine = |name: &str, state: &str, created: bool| {
            json!({
                "metadata": {"namespace": "default", "name": name},
                "status": {"printableStatus": state, "created": created},
            })
        };
        let machines = [
            machine("dev", "Running", true),
            machine("off", "CrashLoopBackOff", false),
            machine("taken", "Stopped", false),
        ];
        let guests = vec![guest("dev"), guest("taken"), guest("bare")];
        let shown: Vec<String> = rows(&machines, guests)
            .iter()
            .map(|row| row.cells().join(" "))
            .collect();
        assert_eq!(
            shown,
            [
                "dev Running 500m 0 ? 0 0 0 0 0 0",
                "off CrashLoopBackOff - - - - - - - - -",
                "taken Stopped - - - - - - - - -",
            ]
        );
        let off = &rows(&machines, Vec::new())[1].to_json();
        assert_eq!(
            (&off["printableStatus"], &off["cpus"]),
            (&json!("CrashLoopBackOff"), &json!(null))
        );
    }

    #[test]
    fn a_type_may_be_named_and_names_after_it() {
        let of = |words: &str| Of::parse(&words.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let is = |words: &str, machines: bool, names: &[&str]| {
            let wanted = Of {
                machines,
                names: names.iter().map(|name| (*name).to_owned()).collect(),
            };
            assert_eq!(of(words).ok(), Some(wanted), "{words}");
        };
        is("vm", true, &[]);
        is("virtualmachines.kubevirt.io web db", true, &["web", "db"]);
        is("vm/web", true, &["web"]);
        is("vmi web", false, &["web"]);
        assert!(of("pod").is_err());
        let chosen = of("vmi web").ok().map(|of| of.choose(vec![guest("db")]));
        assert!(matches!(chosen, Some(Err(_))));
    }
}
