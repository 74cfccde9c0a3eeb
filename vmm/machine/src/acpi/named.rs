//! Functions that firmware gives a number, by which guests name them (`acpi_index` of Linux, `eno1` of udev):
//! `_DSM` of PCI functions (PCI Firmware 3.3, 4.6.7).

use acpi_tables::Aml;
use acpi_tables::aml::{
    Arg, BufferData, Device, Equal, GreaterThan, If, Method, Name, Package, Return, Uuid,
};

use super::encoded::Encoded;

const PCI_FUNCTIONS: &str = "E5C937D0-3553-4D7A-9117-EA4D19C3434D";
/// The revision that function 7 came with is 2.
const REVISION_BEFORE: u8 = 1;
const LIST_FUNCTIONS: u8 = 0;
const NAME_DEVICE: u8 = 7;
/// Bits of the functions that there are.
const FUNCTIONS: u8 = 1 << LIST_FUNCTIONS | 1 << NAME_DEVICE;

/// A function with a number. Of one behind a root port `port` is the port's device number: bus numbers are
/// the guest's to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamedFunction {
    pub(crate) device: u8,
    pub(crate) port: Option<u8>,
    pub(crate) index: u16,
}

/// What belongs into the host bridge: each function, with its method.
pub(super) fn append_named(body: &mut Vec<u8>, functions: &[NamedFunction]) {
    for function in functions {
        let Encoded(device) = function.device();
        body.extend(device);
    }
}

impl NamedFunction {
    fn device(self) -> Encoded {
        let method = naming(self.index);
        let named = |name: &str, device: u8, child: &dyn Aml| {
            let address = Name::new("_ADR".into(), &(u32::from(device) << 16));
            let mut aml = Vec::new();
            Device::new(name.into(), vec![&address, child]).to_aml_bytes(&mut aml);
            Encoded(aml)
        };
        let on_bus_0 =
            |device: u8, child: &dyn Aml| named(&format!("S{device:02X}_"), device, child);
        match self.port {
            None => on_bus_0(self.device, &method),
            Some(port) => on_bus_0(port, &named("SLOT", self.device, &method)),
        }
    }
}

/// `_DSM` of the function with this number. Its name beside the number is empty.
fn naming(index: u16) -> Encoded {
    let uuid = Uuid::new(PCI_FUNCTIONS);
    let (known, none) = (BufferData::new(vec![FUNCTIONS]), BufferData::new(vec![0]));
    let name = Package::new(vec![&index, &""]);
    let is_known_revision = GreaterThan::new(&Arg(1), &REVISION_BEFORE);
    let asks_for = |function: &'static u8| Equal::new(&Arg(2), function);
    let mut aml = Vec::new();
    Method::new(
        "_DSM".into(),
        4,
        false,
        vec![
            &If::new(
                &Equal::new(&Arg(0), &uuid),
                vec![&If::new(
                    &is_known_revision,
                    vec![
                        &If::new(&asks_for(&LIST_FUNCTIONS), vec![&Return::new(&known)]),
                        &If::new(&asks_for(&NAME_DEVICE), vec![&Return::new(&name)]),
                    ],
                )],
            ),
            &Return::new(&none),
        ],
    )
    .to_aml_bytes(&mut aml);
    Encoded(aml)
}
