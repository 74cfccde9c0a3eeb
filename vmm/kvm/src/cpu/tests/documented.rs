//! docs/cpu-models.md says what the tables say.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::*;
use crate::cpu::models::features;
use proto_machine::cpu_features::{ALIASES, BitSource, WORDS};
use proto_machine::cpu_models::Signature;

const PAGE: &str = include_str!("../../../../../docs/cpu-models.md");
const BEGIN: &str = "<!-- generated from proto/machine: begin -->\n";
const END: &str = "<!-- generated: end -->";

fn signature(signature: Signature) -> String {
    let Signature {
        family,
        model,
        stepping,
    } = signature;
    format!("family {family} model {model} stepping {stepping}")
}

fn code_list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    names.join(" ")
}

fn generated() -> String {
    let mut text = String::from("\n## Models\n");
    for model in NamedModel::all() {
        let has = features(model);
        let flags: BTreeSet<&str> = has.iter().flat_map(Feature::cpuinfo_flags).collect();
        let features = code_list(has.iter().map(Feature::name));
        write!(text, "\n### {}\n\n{}\n\n", model.name, model.about).expect("text");
        writeln!(text, "- Brand: {}", model.brand).expect("text");
        writeln!(text, "- Signature: {}", signature(model.signature)).expect("text");
        if model.signature_amd != model.signature {
            let amd = signature(model.signature_amd);
            writeln!(text, "- Signature on AMD and Hygon: {amd}").expect("text");
        }
        writeln!(text, "- Features: {features}").expect("text");
        writeln!(text, "- Shown by Linux: {}", code_list(flags)).expect("text");
    }
    text.push_str(
        "\n## Names of features\n\n| Where | Names, from the lowest bit |\n| --- | --- |\n",
    );
    for word in &WORDS {
        let place = match word.source {
            BitSource::Cpuid {
                leaf,
                subleaf,
                register,
            } => {
                let register = format!("{register:?}").to_uppercase();
                format!("CPUID {leaf:#x}.{subleaf} {register}")
            }
            BitSource::ArchCapabilities => "`IA32_ARCH_CAPABILITIES`".to_owned(),
        };
        let names = code_list(word.bits.iter().map(|(_, name)| *name));
        writeln!(text, "| {place} | {names} |").expect("text");
    }
    text.push_str("\nOther spellings: ");
    let others = ALIASES.map(|(alias, name)| format!("`{alias}` for `{name}`"));
    writeln!(text, "{}.\n", others.join(", ")).expect("text");
    text
}

/// On a difference the right page is printed between the marks.
#[test]
fn the_page_of_models_is_that_of_the_table() {
    let (_, rest) = PAGE.split_once(BEGIN).unwrap();
    let (written, _) = rest.split_once(END).unwrap();
    let right = generated();
    assert!(
        written == right,
        "docs/cpu-models.md is not what the tables say; between its marks belongs:\n{right}"
    );
}
