//! `kvmctl explain`: what a field is, means and how far it is honoured, and what is in it.

use proto_node::FieldDoc;
use proto_node::node::SupportLevel;

use crate::args::Explain;
use crate::explain_kind::ExplainedKind;
use crate::failure::Failure;
use crate::output::{note, print};
use crate::scope::Scope;

/// Columns that text is broken at.
const WIDTH: usize = 90;

/// Prints the page.
pub async fn run(scope: Scope, args: &Explain) -> Result<(), Failure> {
    let (word, path) = split(&args.path);
    let (kind, because) = ExplainedKind::find(scope, word).await?;
    if let Some(why) = because {
        note(&format!("as this release of kvmctl has it: {why}"));
    }
    print(&page(&kind, (&args.path, &path), args.recursive)?)
}

/// The page of a field. `asked` is what was typed, and `path` the field in it.
fn page(
    kind_of: &ExplainedKind,
    (asked, path): (&str, &str),
    recursive: bool,
) -> Result<String, Failure> {
    let fields = &kind_of.fields;
    let mut text = String::new();
    if !kind_of.group.is_empty() {
        text.push_str(&format!("GROUP:      {}\n", kind_of.group));
    }
    text.push_str(&format!(
        "KIND:       {}\nVERSION:    {}\n\n",
        kind_of.kind, kind_of.version
    ));
    if !path.is_empty() {
        let field = fields
            .iter()
            .find(|field| plain(&field.path) == path)
            .ok_or_else(|| unknown(fields, asked, path))?;
        text.push_str(&format!(
            "FIELD: {} <{}>{}\n\nDESCRIPTION:\n",
            path.rsplit('.').next().unwrap_or_default(),
            kind(field),
            required(field),
        ));
        text.push_str(&paragraph(&field.doc, 4));
        text.push_str("\nSUPPORT:\n");
        text.push_str(&paragraph(&support(field), 4));
        text.push_str(&values(field));
    }
    let inside: Vec<&FieldDoc> = fields
        .iter()
        .filter(|field| is_inside(&plain(&field.path), path, recursive))
        .collect();
    if !inside.is_empty() {
        let above = path.split('.').filter(|part| !part.is_empty()).count();
        text.push_str(if path.is_empty() {
            "FIELDS:\n"
        } else {
            "\nFIELDS:\n"
        });
        for field in inside {
            text.push_str(&member(field, above, recursive));
        }
    }
    Ok(text)
}

/// The kind and the path within it: `vmi.spec.domain`.
fn split(asked: &str) -> (&str, String) {
    let (word, path) = asked.split_once('.').unwrap_or((asked, ""));
    (word, plain(path))
}

/// A path as people write it: without the marks of lists and maps.
fn plain(path: &str) -> String {
    path.replace("[]", "").replace(".*", "")
}

fn is_inside(field: &str, path: &str, recursive: bool) -> bool {
    let rest = if path.is_empty() {
        Some(field)
    } else {
        field
            .strip_prefix(path)
            .and_then(|rest| rest.strip_prefix('.'))
    };
    rest.is_some_and(|rest| recursive || !rest.contains('.'))
}

/// The field that was meant may be one step up.
fn unknown(fields: &[FieldDoc], asked: &str, path: &str) -> Failure {
    let mut known = path;
    while let Some((parent, _)) = known.rsplit_once('.') {
        known = parent;
        if fields.iter().any(|field| plain(&field.path) == known) {
            break;
        }
    }
    let inside = fields.iter().filter_map(|field| {
        let field = plain(&field.path);
        is_inside(&field, known, false)
            .then(|| field.rsplit('.').next().unwrap_or_default().to_owned())
    });
    let inside: Vec<String> = inside.collect();
    Failure::refused(format!(
        "there is no field {asked:?} (in {known}: {})",
        inside.join(", ")
    ))
}

fn kind(field: &FieldDoc) -> String {
    if field.path.ends_with("[]") {
        format!("[]{}", field.kind)
    } else if field.path.ends_with(".*") {
        format!("map[string]{}", field.kind)
    } else {
        field.kind.clone()
    }
}

fn required(field: &FieldDoc) -> &'static str {
    if field.required { " -required-" } else { "" }
}

/// How far a field is honoured, as a sentence.
pub fn support(field: &FieldDoc) -> String {
    let level = match field.support {
        SupportLevel::Supported if field.honoured.is_empty() => "honoured",
        SupportLevel::Supported => "honoured for some values",
        SupportLevel::Host => "honoured when the host can",
        SupportLevel::Ignored => "accepted and without effect",
        SupportLevel::Unsupported => "unsupported: refused",
    };
    let mut text = level.to_owned();
    if !field.honoured.is_empty() {
        text.push_str(&format!(" (only {})", field.honoured.join(", ")));
    }
    if !field.note.is_empty() {
        text.push_str(&format!(": {}", field.note));
    }
    text
}

fn values(field: &FieldDoc) -> String {
    if field.allowed.is_empty() {
        return String::new();
    }
    format!("\nVALUES:\n{}", paragraph(&field.allowed.join(", "), 4))
}

/// One line of the list of fields, and what it means.
fn member(field: &FieldDoc, above: usize, recursive: bool) -> String {
    let path = plain(&field.path);
    let depth = path.split('.').count().saturating_sub(above + 1);
    let indent = if recursive { 2 + 2 * depth } else { 2 };
    let name = path.rsplit('.').next().unwrap_or_default();
    let head = format!(
        "{:indent$}{name}\t<{}>{}\n",
        "",
        kind(field),
        required(field)
    );
    if recursive {
        return head;
    }
    format!(
        "{head}{}{}\n",
        paragraph(&field.doc, 4),
        paragraph(&format!("[{}]", support(field)), 4)
    )
}

/// Text broken into lines.
fn paragraph(text: &str, indent: usize) -> String {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && indent + line.len() + 1 + word.len() > WIDTH {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
        .iter()
        .map(|line| format!("{:indent$}{line}\n", ""))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page that is printed where no agent is.
    fn page(asked: &str, recursive: bool) -> Result<String, Failure> {
        let (word, path) = split(asked);
        let kind = ExplainedKind::of_this_release(word);
        let kind = kind.ok_or_else(|| Failure::refused(format!("no kind {word}")))?;
        super::page(&kind, (asked, &path), recursive)
    }

    #[test]
    fn a_page_has_the_field_its_level_and_what_is_in_it() {
        let page = page("vmi.spec.domain.cpu", false).unwrap_or_else(|error| panic!("{error}"));
        for part in [
            "GROUP:      kubevirt.io\nKIND:       VirtualMachineInstance\nVERSION:    v1\n",
            "FIELD: cpu <object>",
            "SUPPORT:\n    honoured\n",
            "  cores\t<integer, not negative>\n",
            "  realtime\t<object>\n",
            "[unsupported: refused: vCPUs are not scheduled in real time",
            "  features\t<[]object>\n",
        ] {
            assert!(page.contains(part), "{part:?} is not in\n{page}");
        }
        assert!(!page.contains("policy"), "only the next step\n{page}");
        assert!(
            page.lines().all(|line| line.chars().count() <= WIDTH),
            "{page}"
        );
    }

    #[test]
    fn recursion_lists_everything_below() {
        let page = page("vmis.spec.domain.cpu", true).unwrap_or_else(|error| panic!("{error}"));
        assert!(
            page.contains("\n  features\t<[]object>\n    name\t<string> -required-\n"),
            "{page}"
        );
    }

    #[test]
    fn a_field_that_is_none_leads_to_those_that_are() {
        let error = page("vmi.spec.domain.cpus.cores", false).expect_err("no such field");
        let text = error.to_string();
        assert!(
            text.contains("in spec.domain:") && text.contains("cpu, "),
            "{text}"
        );
        assert!(page("pod.spec", false).is_err());
        let secret = page("secret.data", false).unwrap_or_else(|error| panic!("{error}"));
        let head = "KIND:       Secret\nVERSION:    v1\n\nFIELD: data <map[string]base64>\n";
        assert!(secret.starts_with(head), "{secret}");
    }

    #[test]
    fn every_level_has_words_of_its_own() {
        let words: std::collections::BTreeSet<String> = proto_node::explain()
            .iter()
            .filter(|field| field.path.starts_with("spec"))
            .map(|field| {
                support(field)
                    .split([':', '('])
                    .next()
                    .unwrap_or_default()
                    .trim()
                    .to_owned()
            })
            .collect();
        let wanted = [
            "accepted and without effect",
            "honoured",
            "honoured for some values",
            "honoured when the host can",
            "unsupported",
        ];
        assert_eq!(words.iter().map(String::as_str).collect::<Vec<_>>(), wanted);
    }
}
