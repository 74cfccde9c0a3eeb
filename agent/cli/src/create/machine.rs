//! A machine while its flags are read.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::params::flag_error;
use crate::args::Login;
use crate::failure::Failure;

/// A machine while its flags are read.
pub struct Machine {
    pub name: String,
    pub run_strategy: String,
    pub grace_period: i64,
    /// What is left of the memory: nothing where an instance type gives some.
    pub memory: Option<String>,
    pub instancetype: Option<Value>,
    pub preference: Option<Value>,
    pub volumes: Vec<Value>,
    pub disks: Vec<Value>,
    pub boot_orders: BTreeMap<u32, String>,
    pub templates: Vec<Value>,
    pub access_credentials: Vec<Value>,
}

/// What flags say of cloud-init, which flags of access credentials can change.
pub struct CloudInit<'a> {
    pub flags: &'a Login,
    pub source: String,
    pub keys: Vec<String>,
    pub ga_manage_ssh: bool,
    pub is_source_given: bool,
    pub is_ga_given: bool,
}

impl Machine {
    /// The volume of a name.
    pub fn volume(&self, name: &str) -> Option<&Value> {
        self.volumes.iter().find(|volume| volume["name"] == name)
    }

    /// Refuses a second volume of a name.
    pub fn check_new(&self, flag: &str, name: &str) -> Result<(), Failure> {
        if self.volume(name).is_none() {
            return Ok(());
        }
        let why = format!("there is already a volume with name \"{name}\"");
        Err(flag_error(flag, why))
    }

    /// Adds the disk of a volume that has a boot order; the others get theirs when the VM is admitted.
    pub fn add_disk(&mut self, flag: &str, name: &str, order: Option<u32>) -> Result<(), Failure> {
        let Some(order) = order else {
            return Ok(());
        };
        if order == 0 {
            return Err(flag_error(flag, "bootorder must be greater than 0"));
        }
        if self.boot_orders.contains_key(&order) {
            let why = format!("bootorder {order} was specified multiple times");
            return Err(flag_error(flag, why));
        }
        self.disks.push(json!({"bootOrder": order, "name": name}));
        self.boot_orders.insert(order, name.to_owned());
        Ok(())
    }
}
