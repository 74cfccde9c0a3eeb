//! Attributes of netlink: length, type and value, padded to 32 bits; values may be attributes again.

/// The value is attributes again.
const NESTED: u16 = 1 << 15;

const HEADER_BYTES: usize = 4;

/// Attributes in a row.
#[derive(Debug, Default)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    pub(super) fn bytes(&mut self, kind: u16, value: &[u8]) {
        // Nothing here is longer than a page: rules are built from bounded parts.
        let length = u16::try_from(value.len() + HEADER_BYTES).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Numbers of nftables are in network byte order.
    pub(super) fn number(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    pub(super) fn text(&mut self, kind: u16, value: &str) {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes);
    }

    pub(super) fn nested(&mut self, kind: u16, build: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        build(&mut inner);
        self.bytes(kind | NESTED, &inner.0);
    }

    /// The value of an attribute of that type.
    pub(super) fn find(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
        while let [a, b, c, d, ..] = bytes {
            let length = usize::from(u16::from_ne_bytes([*a, *b]));
            let value = bytes.get(HEADER_BYTES..length)?;
            if u16::from_ne_bytes([*c, *d]) & !NESTED == kind {
                return Some(value);
            }
            bytes = bytes.get(length.next_multiple_of(4)..)?;
        }
        None
    }

    /// The values of all attributes in a row.
    pub(super) fn each(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
        std::iter::from_fn(move || {
            let [a, b, _, _, ..] = bytes else {
                return None;
            };
            let length = usize::from(u16::from_ne_bytes([*a, *b]));
            let value = bytes.get(HEADER_BYTES..length)?;
            bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
            Some(value)
        })
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
