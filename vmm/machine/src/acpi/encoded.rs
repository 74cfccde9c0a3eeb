//! Pieces of AML that are made before what they are put into.

use acpi_tables::{Aml, AmlSink};

/// A piece of AML.
pub(super) struct Encoded(pub(super) Vec<u8>);

impl Aml for Encoded {
    fn to_aml_bytes(&self, sink: &mut dyn AmlSink) {
        sink.vec(&self.0);
    }
}
