//! What a config drive says of tagged interfaces.

use agent_domain::PciAddress;
use serde_json::{Value, json};

use super::*;

fn meta_data(kind: CloudInitKind) -> Value {
    let interfaces = json!([
        {"name": "net", "bridge": {}, "tag": "uplink", "macAddress": "02:00:00:00:00:07"}
    ]);
    let admitted = crate::small_vmi::admit(&json!({"devices": {"interfaces": interfaces}}));
    let mut vmi = admitted.unwrap().vmi;
    let mut other = vmi.interfaces[0].clone();
    other.tag.clear();
    vmi.interfaces.push(other);
    let mut addresses = PciAddresses::default();
    let address = PciAddress {
        bus: 0x1a,
        device: 0,
    };
    addresses.interfaces.insert(String::from("net"), address);
    let source = CloudInit {
        kind,
        user_data: None,
        network_data: None,
        public_keys: Vec::new(),
        meta_data: None,
    };
    let volume = ConfigVolume::of_cloud_init(&vmi, &addresses, &source).unwrap();
    serde_json::from_slice(&volume.files[0].1).unwrap()
}

#[test]
fn a_config_drive_says_where_interfaces_with_a_tag_are() {
    let devices = &meta_data(CloudInitKind::ConfigDrive)["devices"];
    let wanted = json!([{
        "type": "nic",
        "bus": "pci",
        "address": "0000:1a:00.0",
        "mac": "02:00:00:00:00:07",
        "tags": ["uplink"],
    }]);
    assert_eq!(devices, &wanted);
    assert_eq!(meta_data(CloudInitKind::NoCloud)["devices"], Value::Null);
}
