//! Admission does what the level of each field says.

use proto_node::node::SupportLevel;
use proto_node::{FieldDoc, explain};

use super::*;

/// Words of a refusal that comes from the level of a field.
const NOT_SUPPORTED: &str = "not supported by this release";

/// A value of the field's type; `honoured` or one that this release does not honour.
fn value(field: &FieldDoc, honoured: bool) -> Value {
    let among = |list: &[String]| list.first().cloned();
    let other = || {
        let all = field.allowed.iter();
        let mut rest = all.filter(|value| !field.honoured.contains(value));
        rest.next().cloned()
    };
    match field.kind.as_str() {
        "boolean" => json!(field.honoured.iter().any(|value| value == "true") == honoured),
        "integer" | "integer, not negative" => json!(1),
        "quantity" => json!("1Gi"),
        "string" if honoured => {
            json!(
                among(&field.honoured)
                    .or_else(|| among(&field.allowed))
                    .unwrap_or("x".to_owned())
            )
        }
        "string" => json!(other().unwrap_or("x".to_owned())),
        _ => json!({}),
    }
}

/// A VMI with nothing but this field in its spec, besides what every spec has.
fn vmi_with(field: &FieldDoc, value: Value) -> Value {
    let mut vmi = manifest();
    vmi["spec"] = json!({"domain": {"devices": {}}});
    let mut place = &mut vmi;
    for part in field.path.split('.') {
        place = match part.strip_suffix("[]") {
            Some(name) => {
                place[name] = json!([{}]);
                &mut place[name][0]
            }
            None if part == "*" => &mut place["memory"],
            None => &mut place[part],
        };
        if place.is_null() {
            *place = json!({});
        }
    }
    *place = value;
    vmi
}

/// What the refusals say of the path, without list indexes.
fn refusals(vmi: &Value, path: &str) -> Vec<String> {
    let object = from_node(&Node::from(vmi.clone()));
    let object = object.unwrap_or_else(|errors| panic!("{path}: {errors:?}\n{vmi}"));
    let errors = Vmi::admit_anywhere(object).err().unwrap_or_default();
    let at = path.replace("[]", "").replace(".*", ".memory");
    let is_meant = |found: &str| found.replace("[0]", "") == at;
    errors
        .iter()
        .filter(|error| is_meant(&error.path))
        .map(ToString::to_string)
        .collect()
}

/// The field itself or what it is in, where that is not honoured already.
fn first_unhonoured<'a>(fields: &'a [FieldDoc], path: &str) -> Option<&'a FieldDoc> {
    let is_above = |field: &FieldDoc| {
        let rest = path.strip_prefix(field.path.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    fields.iter().find(|field| {
        let not = [SupportLevel::Unsupported, SupportLevel::Ignored].contains(&field.support);
        not && is_above(field)
    })
}

#[test]
fn what_is_said_to_be_unsupported_is_refused_and_nothing_else_for_its_level() {
    let fields: Vec<FieldDoc> = explain()
        .into_iter()
        .filter(|field| field.path.starts_with("spec."))
        .collect();
    assert!(fields.len() > 200);
    for field in &fields {
        let path = &field.path;
        let judge = |honoured| refusals(&vmi_with(field, value(field, honoured)), path);
        let by_level = |errors: &[String]| errors.iter().any(|error| error.contains(NOT_SUPPORTED));
        match first_unhonoured(&fields, path) {
            Some(first) if first.support == SupportLevel::Unsupported && first.path == *path => {
                // Some in KubeVirt's words, which refuses them, too; all with the way out.
                let errors = judge(true);
                let is_refused = errors.iter().any(|error| error.contains(&field.note));
                assert!(is_refused, "{path} is not refused: {errors:?}");
            }
            // What is in a field that is refused or has no effect is judged by the API's rules alone.
            Some(_) => assert!(!by_level(&judge(true)), "{path}: {:?}", judge(true)),
            None => {
                assert!(!by_level(&judge(true)), "{path}: {:?}", judge(true));
                let is_partial = !field.honoured.is_empty() && field.kind != "object";
                if is_partial {
                    assert!(by_level(&judge(false)), "{path} has no bounds");
                }
            }
        }
    }
}

/// A network has one kind only, so what is honoured of networks is given together.
#[test]
fn what_is_said_to_be_honoured_of_networks_is_admitted() {
    let is_honoured = |field: &FieldDoc| {
        let honoured = [SupportLevel::Supported, SupportLevel::Host].contains(&field.support);
        honoured && field.path.starts_with("spec.networks[].")
    };
    let honoured: Vec<String> = explain()
        .into_iter()
        .filter(is_honoured)
        .map(|field| field.path.replace("spec.networks[].", ""))
        .collect();
    assert_eq!(
        honoured,
        [
            "name",
            "pod",
            "pod.vmNetworkCIDR",
            "pod.vmIPv6NetworkCIDR",
            "multus",
            "multus.networkName",
            "multus.default"
        ]
    );
    let network = json!({"name": "net", "multus": {"networkName": "lan", "default": false}});
    admit(with(&[("/spec/networks", json!([network]))])).unwrap();
    let pod = json!({"vmNetworkCIDR": "10.9.0.0/24", "vmIPv6NetworkCIDR": "fd09::/120"});
    admit(with(&[
        ("/spec/networks", json!([{"name": "net", "pod": pod}])),
        (
            "/spec/domain/devices/interfaces",
            json!([{"name": "net", "masquerade": {}}]),
        ),
    ]))
    .unwrap();
}
