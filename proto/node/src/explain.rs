//! Every field of a kind with its comment and its level of support, from the descriptors alone.

use std::collections::BTreeMap;

use crate::kvmlet::node::v1::{FieldRules, SupportLevel};
use crate::schema::{FieldKind, FieldSchema, Schema, Shape, Width, schema};

/// One field, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldDoc {
    /// Path with `[]` for lists and `.*` for maps, such as `spec.volumes[].name`.
    pub path: String,
    /// Type in JSON.
    pub kind: String,
    /// How far it is honoured; what is in a field that is not has the level of that one.
    pub support: SupportLevel,
    /// The values that are honoured, where not all are.
    pub honoured: Vec<String>,
    /// The values that KubeVirt knows, where it names them.
    pub allowed: Vec<String>,
    /// The field must be given.
    pub required: bool,
    /// Why it is not honoured and what to do instead.
    pub note: String,
    /// What it means: the comment of the `.proto` file as one line.
    pub doc: String,
}

/// The fields of the VMI in the order of declaration, parents before children.
#[must_use]
pub fn explain() -> Vec<FieldDoc> {
    explain_message("kubevirt.v1.VirtualMachineInstance")
}

/// The fields of a message of this full name, likewise; none when there is no such message.
#[must_use]
pub fn explain_message(message: &str) -> Vec<FieldDoc> {
    schema().explain(message)
}

impl Schema {
    /// The fields of a message of this full name in the order of declaration, parents before children; none when there
    /// is no such message. What is in a message that contains itself is left out, and so is what no message of this
    /// table describes: a table may come from others.
    #[must_use]
    pub fn explain(&self, message: &str) -> Vec<FieldDoc> {
        let mut walk = Walk {
            schema: self,
            comments: self.comments(),
            above: Vec::new(),
            docs: Vec::new(),
        };
        walk.append(message, "", None);
        walk.docs
    }
}

/// One walk through a message.
struct Walk<'s> {
    schema: &'s Schema,
    comments: BTreeMap<(String, Vec<i32>), String>,
    /// Messages that the walk is within.
    above: Vec<String>,
    docs: Vec<FieldDoc>,
}

/// Whether nobody looks at what is in such a field.
fn is_unread(rules: &FieldRules) -> bool {
    matches!(
        rules.support(),
        SupportLevel::Unsupported | SupportLevel::Ignored
    )
}

impl Walk<'_> {
    fn append(&mut self, message: &str, prefix: &str, unread: Option<&FieldRules>) {
        let Some(found) = self.schema.find(message) else {
            return;
        };
        if self.above.iter().any(|above| above == message) {
            return;
        }
        self.above.push(message.to_owned());
        for field in &found.fields {
            let mut path = prefix.to_owned();
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(field.name());
            match field.shape {
                Shape::Single => {}
                Shape::List => path.push_str("[]"),
                Shape::Map => path.push_str(".*"),
            }
            let file = field.descriptor.parent_file().name().to_owned();
            let place = (file, field.descriptor.path().to_vec());
            let unread = unread.or_else(|| is_unread(&field.rules).then_some(&field.rules));
            let level = unread.unwrap_or(&field.rules);
            self.docs.push(FieldDoc {
                kind: type_name(field),
                support: level.support(),
                honoured: field.rules.honoured.clone(),
                allowed: field.rules.allowed.clone(),
                required: field.rules.required,
                note: level.note.clone(),
                doc: self.comments.get(&place).cloned().unwrap_or_default(),
                path: path.clone(),
            });
            if let Some(form) = field.form() {
                self.append(form, &path, unread);
            }
        }
        self.above.pop();
    }
}

fn type_name(field: &FieldSchema) -> String {
    match &field.kind {
        FieldKind::Bool => "boolean",
        FieldKind::Integer(Width::I32 | Width::I64) => "integer",
        FieldKind::Integer(Width::U32 | Width::U64) => "integer, not negative",
        FieldKind::Text => "string",
        FieldKind::Quantity => "quantity",
        FieldKind::Json(None) => "any",
        FieldKind::Base64 => "base64",
        FieldKind::Message(_) | FieldKind::Json(Some(_)) => "object",
    }
    .to_owned()
}

impl Schema {
    /// Leading comments by file and descriptor path.
    fn comments(&self) -> BTreeMap<(String, Vec<i32>), String> {
        let mut comments = BTreeMap::new();
        for file in self.pool.files() {
            let proto = file.file_descriptor_proto();
            let locations = proto
                .source_code_info
                .iter()
                .flat_map(|info| &info.location);
            for location in locations {
                let text = location.leading_comments();
                if !text.is_empty() {
                    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
                    comments.insert((file.name().to_owned(), location.path.clone()), line);
                }
            }
        }
        comments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_the_spec_has_a_comment() {
        let docs = explain();
        let bare: Vec<&str> = docs
            .iter()
            .filter(|field| field.path.starts_with("spec.") && field.doc.is_empty())
            .map(|field| field.path.as_str())
            .collect();
        assert!(bare.is_empty(), "{bare:?}");
        assert!(
            docs.iter()
                .any(|field| field.path == "spec.domain.devices.disks[].disk.bus")
        );
    }

    #[test]
    fn descriptors_of_one_message_explain_it_as_all_do() {
        let ours = Schema::this_release();
        for message in [
            "kubevirt.v1.VirtualMachineInstance",
            "kvmlet.core.v1.Secret",
        ] {
            let descriptors = ours.descriptors_of(message).expect("is a message");
            let theirs = Schema::of_descriptors(&descriptors).expect("are whole");
            assert_eq!(theirs.explain(message), ours.explain(message), "{message}");
        }
        let few = ours.descriptors_of("kvmlet.core.v1.Secret");
        let few = few.expect("is a message").len();
        assert!(
            few * 4 < crate::DESCRIPTORS.len(),
            "{few}: its own file and what it needs"
        );
        assert_eq!(ours.descriptors_of("kvmlet.core.v1.None"), None);
    }

    #[test]
    fn a_message_of_others_that_contains_itself_comes_to_an_end() {
        let proto = "syntax = \"proto3\";\npackage odd.v1;\nimport \"kvmlet/node/v1/options.proto\";\n\
            message Tree {\n  repeated Tree branches = 1;\n  bytes leaf = 2 [(kvmlet.node.v1.rules) = \
            {format: FORMAT_JSON, form: \"odd.v1.Missing\"}];\n}\n";
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("tree.proto"), proto).expect("is written");
        let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");
        let mut compiler =
            protox::Compiler::new([directory.path(), ours.as_ref()]).expect("directories");
        compiler.include_imports(true);
        compiler.open_file("tree.proto").expect("a .proto file");
        let schema = Schema::of_descriptors(&compiler.encode_file_descriptor_set());
        let fields = schema.expect("descriptors").explain("odd.v1.Tree");
        let paths: Vec<&str> = fields.iter().map(|field| field.path.as_str()).collect();
        assert_eq!(paths, ["branches[]", "leaf"]);
    }

    #[test]
    fn what_is_in_a_field_that_nobody_reads_has_its_level() {
        let docs = explain();
        let field = |path: &str| {
            let found = docs.iter().find(|field| field.path == path);
            found.unwrap_or_else(|| panic!("no field {path}"))
        };
        let (path, above) = (
            "status.kernelBootStatus.kernelInfo.checksum",
            "status.kernelBootStatus",
        );
        assert_eq!(field(path).support, SupportLevel::Ignored);
        assert_eq!(field(path).note, field(above).note);
        for path in ["spec.networks[].multus.default", "status.nodeName"] {
            assert_eq!(field(path).support, SupportLevel::Supported, "{path}");
        }
    }
}
