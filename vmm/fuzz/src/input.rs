//! Bytes as a program: numbers and choices, one after another. At the end all is zero.

/// What is left of a program.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// A whole program.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next `count` bytes, or as many as there are.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (now, later) = self.0.split_at(count.min(self.0.len()));
        self.0 = later;
        now
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        for (place, byte) in array.iter_mut().zip(self.bytes(N)) {
            *place = *byte;
        }
        array
    }

    /// A byte.
    pub fn u8(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    /// 16 bits.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// 32 bits.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// 64 bits.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A number below `count`, which is at least 1 and at most 256.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.u8()) % count.max(1)
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        self.u8() & 1 != 0
    }

    /// The bytes of one access: 1, 2, 4 or 8 of them.
    pub fn access(&mut self) -> Vec<u8> {
        let count = 1 << self.below(4);
        let mut bytes = self.bytes(count).to_vec();
        bytes.resize(count, 0);
        bytes
    }
}
