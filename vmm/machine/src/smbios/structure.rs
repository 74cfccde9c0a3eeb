//! Structures and the table that they make (6.1).

/// One structure in the making: fields in their order, and the strings that they name.
pub(super) struct Structure {
    formatted: Vec<u8>,
    strings: Vec<u8>,
    string_count: u8,
}

impl Structure {
    /// A structure of type `kind`, without fields.
    pub(super) fn new(kind: u8) -> Self {
        Self {
            // Length and handle are known later.
            formatted: vec![kind, 0, 0, 0],
            strings: Vec::new(),
            string_count: 0,
        }
    }

    /// A field of any width.
    pub(super) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.formatted.extend_from_slice(bytes);
        self
    }

    pub(super) fn byte(self, value: u8) -> Self {
        self.bytes(&[value])
    }

    pub(super) fn word(self, value: u16) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn double(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn quad(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// A field that names a string; an empty one is not specified.
    pub(super) fn string(mut self, text: &str) -> Self {
        let number = self.add_string(text);
        self.byte(number)
    }

    /// A string that no field names. Returns its number, 0 for none.
    pub(super) fn add_string(&mut self, text: &str) -> u8 {
        // A NUL would end the string for the guest, and hide the next.
        let text = text.split('\0').next().unwrap_or_default();
        let next = self.string_count.checked_add(1);
        let (false, Some(number)) = (text.is_empty(), next) else {
            return 0;
        };
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        self.string_count = number;
        number
    }
}

/// All structures, one after the other.
#[derive(Default)]
pub(super) struct Table {
    bytes: Vec<u8>,
    next_handle: u16,
}

impl Table {
    /// Appends a structure; returns the handle by which others name it.
    pub(super) fn add(&mut self, structure: Structure) -> u16 {
        let handle = self.next_handle;
        self.next_handle = handle.wrapping_add(1);
        let Structure {
            mut formatted,
            strings,
            ..
        } = structure;
        let length = u8::try_from(formatted.len()).unwrap_or(u8::MAX);
        let [low, high] = handle.to_le_bytes();
        for (field, value) in formatted.iter_mut().skip(1).zip([length, low, high]) {
            *field = value;
        }
        self.bytes.append(&mut formatted);
        self.bytes.extend_from_slice(&strings);
        // The set of strings ends with one that is empty, and is two NULs when there is none.
        if strings.is_empty() {
            self.bytes.push(0);
        }
        self.bytes.push(0);
        handle
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}
