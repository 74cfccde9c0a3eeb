//! The rules that the descriptors state: required fields, known values, levels of support.

use prost::{Message, Name};
use proto_node::node::{FieldRules, SupportLevel};
use proto_node::{Seen, Visited, visit};

use super::admitted::Remark;
use super::review::Review;
use crate::error::{Bound, FieldError, Rule};
use crate::quantity::Quantity;

/// Judges every field that is set or required, but for what is in the fields of `left_out`: those are another's to judge.
///
/// What is in a field that is refused or without effect is judged by the API's rules alone, and only of what is new.
pub(super) fn check<M: Message + Name>(object: &M, left_out: &[&str], review: &mut Review<'_>) {
    let mut unread: Option<String> = None;
    visit(object, "", &mut |field| {
        if field.seen != Seen::Absent && left_out.contains(&field.path) {
            return false;
        }
        unread.take_if(|above| !is_within(field.path, above));
        let is_unread = unread.is_some();
        match check_field(&field, is_unread, review) {
            Children::Judged => true,
            Children::LeftOut => false,
            Children::Unread => {
                unread.get_or_insert_with(|| field.path.to_owned());
                review.is_new()
            }
        }
    });
}

/// Rules for the fields that are in a field.
enum Children {
    /// They are judged by all rules.
    Judged,
    /// They are judged by the API's rules: this release does not read them.
    Unread,
    /// They are not judged.
    LeftOut,
}

fn is_within(path: &str, above: &str) -> bool {
    let rest = path.strip_prefix(above);
    rest.is_some_and(|rest| rest.starts_with(['.', '[']))
}

/// The path at which the level of a field is reported: once for a list, at its first element.
fn reported_at(path: &str) -> Option<&str> {
    match path.rsplit_once('[') {
        Some((list, "0]")) => Some(list),
        Some((_, index)) if index.ends_with(']') => None,
        _ => Some(path),
    }
}

fn check_field(field: &Visited<'_>, is_unread: bool, review: &mut Review<'_>) -> Children {
    let rules = field.rules;
    if field.seen == Seen::Absent {
        review.required(
            field.path,
            format!("{} in body is required", without_indexes(field.path)),
        );
        return Children::LeftOut;
    }
    if let Seen::Quantity(text) = field.seen
        && Quantity::parse(text).is_none()
    {
        review.invalid(
            field.path,
            text,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        );
        return Children::LeftOut;
    }
    let value = match field.seen {
        Seen::Bool(true) => Some("true"),
        Seen::Bool(false) => Some("false"),
        Seen::Text(text) | Seen::Number(text) | Seen::Quantity(text) => Some(text),
        Seen::Absent | Seen::Object => None,
    };
    if let Some(value) = value
        && !known(rules, value)
    {
        review.push(unknown_value(field.path, rules, value));
        return Children::LeftOut;
    }
    if is_unread {
        return Children::Unread;
    }
    match rules.support() {
        // What a host lacks is judged where its abilities are known.
        SupportLevel::Supported | SupportLevel::Host => {}
        SupportLevel::Ignored => {
            review
                .ignored
                .extend(reported_at(field.path).map(|path| Remark {
                    path: path.to_owned(),
                    message: rules.note.clone(),
                }));
            return Children::Unread;
        }
        SupportLevel::Unsupported => {
            if let Some(path) = reported_at(field.path) {
                review.push(not_honoured(path, rules, value));
            }
            return Children::Unread;
        }
    }
    if let Some(value) = value
        && !rules.honoured.is_empty()
        && !rules.honoured.iter().any(|honoured| honoured == value)
    {
        review.push(not_honoured(field.path, rules, Some(value)));
    }
    Children::Judged
}

fn known(rules: &FieldRules, value: &str) -> bool {
    rules.allowed.is_empty() || rules.allowed.iter().any(|allowed| allowed == value)
}

fn not_honoured(path: &str, rules: &FieldRules, value: Option<&str>) -> FieldError {
    let (rule, words) = if rules.refusal.is_empty() {
        (Rule::NotSupported, "not supported by this release")
    } else {
        (Rule::Invalid, rules.refusal.as_str())
    };
    let mut error = FieldError::new(path, rule, words).fix(rules.note.clone());
    error.value = value.map(str::to_owned);
    error
}

/// Fields of which KubeVirt takes any value, and finds out later what it can do with it.
const ADMITTED_BY_KUBEVIRT: [&str; 5] = [
    ".i6300esb.action",
    ".tickPolicy",
    ".rtc.track",
    ".cdrom.tray",
    "spec.updateVolumesStrategy",
];

/// A value that KubeVirt itself does not know, in its words where it has some.
fn unknown_value(path: &str, rules: &FieldRules, value: &str) -> FieldError {
    let message = match path {
        "spec.architecture" => format!("unsupported architecture: {value}"),
        "spec.evictionStrategy" | "spec.startStrategy" => {
            format!("{path} is set with an unrecognized option: {value}")
        }
        "spec.domain.ioThreadsPolicy" => format!("Invalid IOThreadsPolicy ({value})"),
        "spec.runStrategy" => format!("Invalid RunStrategy ({value})"),
        _ => of_list_element(path, value).unwrap_or_default(),
    };
    let supported = supported(&rules.allowed);
    let error = if message.is_empty() {
        FieldError::new(path, Rule::NotSupported, supported).value(value)
    } else {
        FieldError::new(path, Rule::Invalid, message)
            .value(value)
            .fix(supported)
    };
    let is_admitted = ADMITTED_BY_KUBEVIRT.iter().any(|end| path.ends_with(end));
    error.beyond(if is_admitted {
        Bound::Release
    } else {
        Bound::Api
    })
}

/// Names the values that a field may have.
fn supported<T: AsRef<str>>(allowed: &[T]) -> String {
    let quoted: Vec<String> = allowed
        .iter()
        .map(|value| format!("{:?}", value.as_ref()))
        .collect();
    format!("supported values: {}", quoted.join(", "))
}

/// Refuses a value that the schema of KubeVirt's objects does not have, where descriptors do not say it. An empty one is one
/// that is not given.
pub(super) fn check_allowed(path: &str, value: &str, allowed: &[&str], review: &mut Review<'_>) {
    if !value.is_empty() && !allowed.contains(&value) {
        let error = FieldError::new(path, Rule::NotSupported, supported(allowed));
        review.push(error.value(value).beyond(Bound::Api));
    }
}

/// KubeVirt's words of a value in an element of a list.
fn of_list_element(path: &str, value: &str) -> Option<String> {
    const DISKS: &str = "spec.domain.devices.disks";
    let (element, member) = path.rsplit_once("].")?;
    let (list, _) = element.rsplit_once('[')?;
    Some(match (list, member) {
        (DISKS, "cache") => format!("{path} has invalid value {value}"),
        (DISKS, "errorPolicy") => format!("{path} has invalid value {value:?}"),
        (DISKS, "io") => {
            format!(
                "Disk IO mode for {DISKS} is not supported. Supported modes are: native, threads."
            )
        }
        ("spec.domain.devices.panicDevices", "model") => {
            format!("invalid PanicDeviceModel({value})")
        }
        ("spec.volumes", "hostDisk.type") => {
            format!("{path} has invalid value '{value}', allowed are 'Disk' or 'DiskOrCreate'")
        }
        _ => return None,
    })
}

/// OpenAPI's messages name fields without list indexes.
fn without_indexes(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    let mut inside = false;
    for character in path.chars() {
        match character {
            '[' => inside = true,
            ']' => inside = false,
            _ if !inside => text.push(character),
            _ => {}
        }
    }
    text
}
