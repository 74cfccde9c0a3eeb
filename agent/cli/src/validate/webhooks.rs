//! What KubeVirt's webhooks refuse in objects of kinds that this release does not take, as far as the object alone says it. They are
//! asked once an object has its form.

use serde_json::Value;

use super::cause::{Cause, plain};
use super::formed::by_form;
use super::legal_kind::LegalKind;
use super::node::JudgedNode;

const KUBEVIRT: &str = "kubevirt.io";
const SNAPSHOTS: &str = "snapshot.kubevirt.io";
const MACHINE: &str = "VirtualMachine";
const SNAPSHOT: &str = "VirtualMachineSnapshot";

/// What a webhook says of a spec.
type Webhook = fn(&Value) -> Vec<Cause>;

/// The causes of the form, or else those of a webhook.
fn behind_form(
    kind: &LegalKind,
    object: Value,
    node: Option<&JudgedNode>,
    webhook: Webhook,
) -> Vec<Cause> {
    let spec = object.get("spec").cloned().unwrap_or_default();
    let causes = by_form(kind, object, node);
    if causes.is_empty() {
        webhook(&spec)
    } else {
        causes
    }
}

pub(super) fn migration(kind: &LegalKind, object: Value, node: Option<&JudgedNode>) -> Vec<Cause> {
    behind_form(kind, object, node, |spec| {
        let mut causes = Vec::new();
        if text(spec, "/vmiName").is_empty() {
            causes.push(Cause {
                kind: "FieldValueRequired",
                ..plain("spec.vmiName", String::from("vmiName is missing"))
            });
        }
        causes
    })
}

pub(super) fn snapshot(kind: &LegalKind, object: Value, node: Option<&JudgedNode>) -> Vec<Cause> {
    behind_form(kind, object, node, |spec| machine_at(spec, "source"))
}

pub(super) fn restore(kind: &LegalKind, object: Value, node: Option<&JudgedNode>) -> Vec<Cause> {
    behind_form(kind, object, node, |spec| {
        let mut causes = machine_at(spec, "target");
        if causes.is_empty() {
            causes.extend(restored_patches(spec));
            causes.extend(overrides(spec));
            let policies = [
                (
                    "volumeRestorePolicy",
                    "restore",
                    ["InPlace", "RandomizeNames"],
                ),
                ("volumeOwnershipPolicy", "ownership", ["Vm", "None"]),
            ];
            for (field, word, known) in policies {
                let policy = spec.get(field).and_then(Value::as_str);
                if let Some(policy) = policy.filter(|policy| !known.contains(policy)) {
                    let message = format!("volume {word} policy \"{policy}\" doesn't exist");
                    causes.push(plain(&format!("spec.{field}"), message));
                }
            }
        }
        causes
    })
}

pub(super) fn export(kind: &LegalKind, object: Value, node: Option<&JudgedNode>) -> Vec<Cause> {
    behind_form(kind, object, node, |spec| {
        let group = text(spec, "/source/apiGroup");
        let (word, is_right, rule) = match text(spec, "/source/kind") {
            "PersistentVolumeClaim" => (
                "PVC",
                group.is_empty(),
                "PVC API group must be missing or blank",
            ),
            SNAPSHOT => (
                "VMSnapshot",
                group == SNAPSHOTS,
                "VMSnapshot API group must be snapshot.kubevirt.io",
            ),
            MACHINE => (
                "Virtual Machine",
                group == KUBEVIRT,
                "VM API group must be kubevirt.io",
            ),
            _ => return vec![invalid("spec.source.kind", "invalid kind")],
        };
        let mut causes = Vec::new();
        if text(spec, "/source/name").is_empty() {
            let message = format!("{word} name must not be empty");
            causes.push(plain("spec.source.name", message));
        }
        if !is_right {
            causes.push(invalid("spec.source.APIGroup", rule));
        }
        causes
    })
}

pub(super) fn clone(kind: &LegalKind, object: Value, node: Option<&JudgedNode>) -> Vec<Cause> {
    behind_form(kind, object, node, |spec| {
        let mut causes = Vec::new();
        for (place, field) in [
            ("/annotationFilters", "spec.annotations"),
            ("/labelFilters", "spec.labels"),
            ("/template/annotationFilters", "spec.template.annotations"),
            ("/template/labelFilters", "spec.template.labels"),
        ] {
            for filter in texts(spec, place) {
                causes.extend(odd_filter(field, filter));
            }
        }
        causes.extend(cloned(spec));
        let addresses = spec.get("newMacAddresses").and_then(Value::as_object);
        for (name, address) in addresses.into_iter().flatten() {
            let address = address.as_str().unwrap_or_default();
            if !address.is_empty() && !is_mac(address) {
                let message = format!("interface {name} has malformed MAC address ({address}).");
                causes.push(plain(&format!("spec.newMacAddresses.{name}"), message));
            }
        }
        for (index, patch) in texts(spec, "/patches").enumerate() {
            if serde_json::from_str::<serde::de::IgnoredAny>(patch).is_err() {
                let message = format!("patch is not valid JSON ({patch})");
                causes.push(plain(&format!("spec.patches[{index}]"), message));
            }
        }
        causes
    })
}

pub(super) fn migration_policy(
    kind: &LegalKind,
    object: Value,
    node: Option<&JudgedNode>,
) -> Vec<Cause> {
    behind_form(kind, object, node, |spec| {
        let figures = ["completionTimeoutPerGiB", "bandwidthPerMigration"];
        let negative = figures.into_iter().filter(|field| {
            let figure = spec.get(*field);
            figure.is_some_and(|figure| match figure {
                Value::String(text) => is_negative(text),
                other => is_negative(&other.to_string()),
            })
        });
        let causes =
            negative.map(|field| invalid(&format!("spec.{field}"), "must not be negative"));
        causes.collect()
    })
}

/// How many machines of a pool may be unavailable.
pub(super) fn unavailable(spec: &Value) -> Option<Cause> {
    let field = "spec.maxUnavailable";
    let wrong = match spec.get("maxUnavailable")? {
        Value::Number(number) if number.as_i64().is_some_and(|number| number <= 0) => {
            String::from("maxUnavailable must be greater than 0")
        }
        Value::String(text) => {
            let Some(share) = text.strip_suffix('%') else {
                return Some(invalid(field, "maxUnavailable percentage must end with %"));
            };
            match share.parse::<i64>() {
                Ok(1..=100) => return None,
                Ok(share) => {
                    format!("maxUnavailable percentage value {share} must be between 1 and 100")
                }
                Err(_) => format!(
                    "maxUnavailable percentage value {share:?} is invalid: strconv.Atoi: parsing {share:?}: invalid syntax"
                ),
            }
        }
        _ => return None,
    };
    Some(plain(field, wrong))
}

/// The strategies of a pool, each of which may be one thing.
pub(super) fn strategies(spec: &Value) -> Vec<Cause> {
    let fields = ["updateStrategy", "scaleInStrategy"].into_iter();
    let wrong = fields.filter_map(|field| {
        let strategy = spec.get(field)?;
        let kinds = ["unmanaged", "opportunistic", "proactive"].into_iter();
        let given: Vec<&str> = kinds
            .filter(|kind| strategy.get(kind).is_some_and(|it| !it.is_null()))
            .collect();
        let message = format!(
            "only one strategy can be configured at a time: but found {} strategies",
            given.join(", ")
        );
        (given.len() > 1).then(|| plain(&format!("spec.{field}"), message))
    });
    wrong.collect()
}

/// A reference that must name a machine.
fn machine_at(spec: &Value, member: &str) -> Vec<Cause> {
    let field = |name: &str| format!("spec.{member}.{name}");
    let group = spec.pointer(&format!("/{member}/apiGroup"));
    let kind = text(spec, &format!("/{member}/kind"));
    let cause = match group.and_then(Value::as_str) {
        None => Cause {
            kind: "FieldValueNotFound",
            ..invalid(&field("apiGroup"), "missing apiGroup")
        },
        Some(KUBEVIRT) if kind == MACHINE => return Vec::new(),
        Some(KUBEVIRT) => invalid(&field("kind"), "invalid kind"),
        Some(_) => invalid(&field("apiGroup"), "invalid apiGroup"),
    };
    vec![cause]
}

/// Patches of a restored machine. KubeVirt reads them as members between commas, each with one colon, and only where the snapshot
/// is there.
fn restored_patches(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let members = texts(spec, "/patches").flat_map(|patch| {
        let within = patch.trim_matches(['{', '}']);
        within.split(',')
    });
    for member in members {
        let parts: Vec<&str> = member.split(':').map(str::trim).collect();
        let message = match parts[..] {
            [r#""path""#, path] => {
                let legal = ["/metadata/labels/", "/metadata/annotations/", "/spec/"];
                let mut legal = legal.into_iter();
                if legal.any(|place| path.starts_with(&format!("\"{place}"))) {
                    continue;
                }
                format!("patching is valid only for elements under /spec/ only: {member}")
            }
            [_, _] => continue,
            _ => format!(
                "patch format is not valid - one \":\" expected in a single key-value json patch: {member}"
            ),
        };
        causes.push(plain("spec.patches", message));
    }
    causes
}

fn overrides(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut missing = |field: String, message: &str| {
        causes.push(Cause {
            kind: "FieldValueRequired",
            ..invalid(&field, message)
        });
    };
    let given = spec.get("volumeRestoreOverrides").and_then(Value::as_array);
    for (index, one) in given.into_iter().flatten().enumerate() {
        let field = format!("spec.volumeRestoreOverrides[{index}]");
        if text(one, "/volumeName").is_empty() {
            missing(format!("{field}.volumeName"), "must provide a volume name");
        }
        let has = |name: &str| one.get(name).is_some_and(|value| !value.is_null());
        if text(one, "/restoreName").is_empty() && !has("annotations") && !has("labels") {
            missing(field, "must provide at least one overriden field");
        }
    }
    causes
}

/// The source of a clone, and its target.
fn cloned(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let source = text(spec, "/source/kind");
    if ![MACHINE, SNAPSHOT].contains(&source) {
        causes.push(invalid("spec.Source.Kind", "Source kind is not supported"));
    }
    let target = spec.get("target").map(|_| text(spec, "/target/kind"));
    if target.is_some_and(|target| target != MACHINE) {
        causes.push(invalid("spec.Target.Kind", "Target kind is not supported"));
    }
    for (member, field, message) in [
        (
            "apiGroup",
            "spec.Source.APIGroup",
            "Source's APIGroup cannot be empty",
        ),
        ("kind", "spec.Source", "Source's Kind cannot be empty"),
        ("name", "spec.Source.Name", "Source's name cannot be empty"),
    ] {
        if text(spec, &format!("/source/{member}")).is_empty() {
            causes.push(invalid(field, message));
        }
    }
    let is_same = text(spec, "/source/name") == text(spec, "/target/name");
    if source == MACHINE && target == Some(MACHINE) && is_same {
        let message = "Target name cannot be equal to source name when both are VirtualMachines";
        causes.push(invalid("spec.target.name", message));
    }
    causes
}

fn odd_filter(field: &str, filter: &str) -> Vec<Cause> {
    let mut characters = filter.chars();
    let (Some(first), last) = (characters.next(), characters.next_back()) else {
        return Vec::new();
    };
    if last.is_none() {
        let message = "a negation character is not a valid filter";
        return (first == '!')
            .then(|| invalid(field, message))
            .into_iter()
            .collect();
    }
    let behind_first = &filter[first.len_utf8()..];
    let before_last = &filter[..filter.len() - last.map_or(0, char::len_utf8)];
    let rules = [
        (
            behind_first.contains('!'),
            "negation",
            "!",
            "NegationChar can be only used at the beginning of the filter",
        ),
        (
            before_last.contains('*'),
            "wildcard",
            "*",
            "WildcardChar can be only at the end of the filter",
        ),
    ];
    let broken = rules.into_iter().filter(|(is_broken, ..)| *is_broken);
    let causes = broken.map(|(_, word, character, rule)| {
        let message = format!(
            "{field} filter {filter} is invalid: cannot contain a {word} character ({character}); FilterRules: {rule}"
        );
        plain(field, message)
    });
    causes.collect()
}

/// Whether Go's `net.ParseMAC` reads an address of six bytes: pairs of digits between colons or hyphens, or fours between dots.
fn is_mac(text: &str) -> bool {
    let has = |separator: char, groups: usize, digits: usize| {
        let parts: Vec<&str> = text.split(separator).collect();
        let is_group = |part: &&str| {
            part.len() == digits && part.bytes().all(|digit| digit.is_ascii_hexdigit())
        };
        parts.len() == groups && parts.iter().all(is_group)
    };
    has(':', 6, 2) || has('-', 6, 2) || has('.', 3, 4)
}

/// Whether a quantity is less than nothing.
fn is_negative(quantity: &str) -> bool {
    quantity.strip_prefix('-').is_some_and(|rest| {
        let digits = rest
            .bytes()
            .take_while(|byte| byte.is_ascii_digit() || *byte == b'.');
        digits
            .into_iter()
            .any(|digit| (b'1'..=b'9').contains(&digit))
    })
}

fn invalid(field: &str, message: &str) -> Cause {
    plain(field, message.to_owned())
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default()
}

fn texts<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a str> {
    let found = value.pointer(pointer).and_then(Value::as_array);
    found.into_iter().flatten().filter_map(Value::as_str)
}
