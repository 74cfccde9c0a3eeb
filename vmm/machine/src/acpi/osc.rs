//! `_OSC` of the PCI host bridge (PCI Firmware 3.2, 4.5): what guests may do themselves.

use acpi_tables::Aml;
use acpi_tables::aml::{
    And, Arg, CreateDWordField, Else, Equal, If, Local, Method, NotEqual, Or, Path, Return, Store,
    Uuid,
};

const PCI_HOST_BRIDGE: &str = "33DB4D5B-1FF7-401C-9657-7441C03DD766";
/// Native hot-plug, and the capability structure that it is done with. Nothing else is there to be
/// handed over.
const GRANTED: u8 = 1 | 1 << 4;
const SUPPORTED_REVISION: u8 = 1;
const UNKNOWN_UUID: u8 = 1 << 2;
const UNKNOWN_REVISION: u8 = 1 << 3;
const CONTROL_MASKED: u8 = 1 << 4;

/// The method, as AML.
pub(super) fn osc() -> Vec<u8> {
    let (first, second, third) = (0u8, 4u8, 8u8);
    let buffer = Arg(3);
    let [status, support, control] = ["CDW1", "CDW2", "CDW3"].map(Path::new);
    let wanted = Local(0);
    let keep_granted = And::new(&wanted, &control, &GRANTED);
    let is_unknown_revision = NotEqual::new(&Arg(1), &SUPPORTED_REVISION);
    let note_revision = Or::new(&status, &status, &UNKNOWN_REVISION);
    let is_masked = NotEqual::new(&control, &wanted);
    let note_masked = Or::new(&status, &status, &CONTROL_MASKED);
    let note_uuid = Or::new(&status, &status, &UNKNOWN_UUID);
    let uuid = Uuid::new(PCI_HOST_BRIDGE);
    let mut aml = Vec::new();
    Method::new(
        "_OSC".into(),
        4,
        true,
        vec![
            &CreateDWordField::new(&status, &buffer, &first),
            &If::new(
                &Equal::new(&Arg(0), &uuid),
                vec![
                    &CreateDWordField::new(&support, &buffer, &second),
                    &CreateDWordField::new(&control, &buffer, &third),
                    &keep_granted,
                    &If::new(&is_unknown_revision, vec![&note_revision]),
                    &If::new(&is_masked, vec![&note_masked]),
                    &Store::new(&control, &wanted),
                ],
            ),
            &Else::new(vec![&note_uuid]),
            &Return::new(&buffer),
        ],
    )
    .to_aml_bytes(&mut aml);
    aml
}
