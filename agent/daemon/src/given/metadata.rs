//! Metadata of a VMI as files, as Kubernetes' downward API writes it.

use std::collections::BTreeMap;

use agent_domain::{MetadataField, MetadataFile};
use proto_node::meta::ObjectMeta;

/// The files of a volume.
pub(super) fn files(files: &[MetadataFile], metadata: &ObjectMeta) -> BTreeMap<String, Vec<u8>> {
    let files = files.iter();
    files
        .map(|file| (file.path.clone(), text(&file.field, metadata).into_bytes()))
        .collect()
}

fn text(field: &MetadataField, metadata: &ObjectMeta) -> String {
    let (labels, annotations) = (&metadata.labels, &metadata.annotations);
    match field {
        MetadataField::Name => metadata.name.clone(),
        MetadataField::Namespace => metadata.namespace.clone(),
        MetadataField::Uid => metadata.uid.clone(),
        MetadataField::Labels => all(labels),
        MetadataField::Annotations => all(annotations),
        MetadataField::Label(key) => labels.get(key).cloned().unwrap_or_default(),
        MetadataField::Annotation(key) => annotations.get(key).cloned().unwrap_or_default(),
    }
}

/// `key="value"`, a line each, without an end of line after the last one.
fn all(map: &BTreeMap<String, String>) -> String {
    let lines: Vec<String> = map
        .iter()
        .map(|(key, value)| format!("{key}={}", quoted(value)))
        .collect();
    lines.join("\n")
}

/// A text as Go's `strconv.Quote` writes it.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            letter if letter.is_ascii_control() => {
                quoted.push_str(&format!("\\x{:02x}", u32::from(letter)));
            }
            letter if letter.is_control() => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_written_as_the_kubelet_writes_them() {
        let file = |path: &str, field| MetadataFile {
            path: path.to_owned(),
            field,
        };
        let map = [("b", "2"), ("a", "say \"hi\"\n\\o\u{1}é")];
        let map: BTreeMap<String, String> = map
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        let metadata = ObjectMeta {
            name: String::from("web"),
            annotations: map,
            ..ObjectMeta::default()
        };
        let files = files(
            &[
                file("name", MetadataField::Name),
                file("all/annotations", MetadataField::Annotations),
                file("labels", MetadataField::Labels),
                file("b", MetadataField::Annotation(String::from("b"))),
                file("none", MetadataField::Label(String::from("b"))),
            ],
            &metadata,
        );
        let text = |path: &str| String::from_utf8_lossy(&files[path]).into_owned();
        assert_eq!(text("name"), "web");
        assert_eq!(
            text("all/annotations"),
            "a=\"say \\\"hi\\\"\\n\\\\o\\x01é\"\nb=\"2\""
        );
        assert_eq!((text("labels").as_str(), text("b").as_str()), ("", "2"));
        assert_eq!(text("none"), "");
    }
}
