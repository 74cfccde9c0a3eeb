//! Items by key, and the directory of those that have names.

use std::collections::BTreeMap;

/// Longest name of a file, without its NUL.
pub const MAX_FILE_NAME_BYTES: usize = 55;

/// Key of the signature.
const SIGNATURE: u16 = 0;
/// Key of the interface's revision and features.
const FEATURES: u16 = 1;
/// Key of the directory.
const DIRECTORY: u16 = 0x19;
/// First key of a file.
const FIRST_FILE: u16 = 0x20;
/// Keys have a bit for writing, which is ignored, and one for what is of an architecture alone.
const WRITE_BIT: u16 = 0x4000;

/// Traditional access, and DMA.
const FEATURE_BITS: u32 = 1 | 1 << 1;
/// Length of a directory's entry.
const ENTRY_BYTES: usize = 64;

/// Content of an item.
pub enum Content {
    /// Always these bytes.
    Fixed(Vec<u8>),
    /// Made whenever it is selected: what it tells of may have been moved by firmware. It is always as long
    /// as this.
    Made {
        /// Length in bytes.
        bytes: usize,
        /// Makes it.
        make: Box<dyn Fn() -> Vec<u8> + Send>,
    },
    /// So many bytes for firmware to write, zero at first.
    Written(usize),
}

/// An item cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    /// The name is too long, or taken.
    #[error("a file of fw_cfg cannot have the name {0:?}")]
    Name(String),
    /// The key is taken, or one of the device's own.
    #[error("key {0:#x} of fw_cfg is taken")]
    Key(u16),
    /// It is longer than 4 GiB.
    #[error("an item of fw_cfg has {0} bytes")]
    TooLong(usize),
}

/// All items.
#[derive(Default)]
pub struct Items {
    by_key: BTreeMap<u16, Item>,
    /// Name and key of each file, by name: firmware need not search in any order.
    files: BTreeMap<String, u16>,
}

struct Item {
    content: Content,
    /// Of those that may be written.
    written: Vec<u8>,
}

impl Item {
    fn new(content: Content) -> Self {
        let written = match &content {
            Content::Written(bytes) => vec![0; *bytes],
            _ => Vec::new(),
        };
        Self { content, written }
    }

    fn is_writable(&self) -> bool {
        matches!(self.content, Content::Written(_))
    }

    fn bytes(&self) -> usize {
        match &self.content {
            Content::Fixed(content) => content.len(),
            Content::Made { bytes, .. } | Content::Written(bytes) => *bytes,
        }
    }

    fn read(&self) -> Vec<u8> {
        match &self.content {
            Content::Fixed(content) => content.clone(),
            Content::Made { bytes, make } => {
                let mut content = make();
                content.resize(*bytes, 0);
                content
            }
            Content::Written(_) => self.written.clone(),
        }
    }
}

impl Items {
    /// Adds an item that is known by its key.
    ///
    /// # Errors
    /// The key is taken.
    pub fn add(&mut self, key: u16, content: Content) -> Result<(), ItemError> {
        let is_own = matches!(key, SIGNATURE | FEATURES | DIRECTORY) || key & WRITE_BIT != 0;
        if is_own || self.by_key.contains_key(&key) {
            return Err(ItemError::Key(key));
        }
        let item = Item::new(content);
        if u32::try_from(item.bytes()).is_err() {
            return Err(ItemError::TooLong(item.bytes()));
        }
        self.by_key.insert(key, item);
        Ok(())
    }

    /// Adds an item that is known by its name.
    ///
    /// # Errors
    /// The name is too long, or taken.
    pub fn add_file(&mut self, name: &str, content: Content) -> Result<(), ItemError> {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic());
        let fits = (1..=MAX_FILE_NAME_BYTES).contains(&name.len());
        if !is_plain || !fits || self.files.contains_key(name) {
            return Err(ItemError::Name(name.to_owned()));
        }
        let count = u16::try_from(self.files.len()).unwrap_or(u16::MAX);
        let key = FIRST_FILE.saturating_add(count);
        self.add(key, content)?;
        self.files.insert(name.to_owned(), key);
        Ok(())
    }

    /// Content of the item at `key`; empty when there is none.
    pub(super) fn content(&self, key: u16) -> Vec<u8> {
        match key & !WRITE_BIT {
            SIGNATURE => b"QEMU".to_vec(),
            FEATURES => FEATURE_BITS.to_le_bytes().to_vec(),
            DIRECTORY => self.directory(),
            key => self.by_key.get(&key).map_or_else(Vec::new, Item::read),
        }
    }

    /// Count, then size, key and name of each file; numbers are big-endian.
    fn directory(&self) -> Vec<u8> {
        let count = u32::try_from(self.files.len()).unwrap_or(0);
        let mut directory = count.to_be_bytes().to_vec();
        for (name, key) in &self.files {
            let bytes = self.by_key.get(key).map_or(0, Item::bytes);
            let bytes = u32::try_from(bytes).unwrap_or(0);
            let end = directory.len() + ENTRY_BYTES;
            directory.extend(bytes.to_be_bytes());
            directory.extend(key.to_be_bytes());
            directory.extend([0; 2]);
            directory.extend(name.as_bytes());
            directory.resize(end, 0);
        }
        directory
    }

    /// Writes to the item at `key` at `offset`; false when it may not be written there.
    pub(super) fn write(&mut self, key: u16, offset: u32, data: &[u8]) -> bool {
        let Some(item) = self.by_key.get_mut(&(key & !WRITE_BIT)) else {
            return false;
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(data.len());
        match item.written.get_mut(start..end) {
            Some(place) => {
                place.copy_from_slice(data);
                true
            }
            None => false,
        }
    }

    pub(super) fn forget_written(&mut self) {
        for item in self.by_key.values_mut() {
            item.written.fill(0);
        }
    }

    pub(super) fn written(&self, name: &str) -> Option<&[u8]> {
        let item = self.by_key.get(self.files.get(name)?)?;
        item.is_writable().then_some(&item.written)
    }

    /// What was written to each file that may be, by name.
    pub(super) fn all_written(&self) -> Vec<Vec<u8>> {
        let files = self.files.keys().filter_map(|name| self.written(name));
        files.map(<[u8]>::to_vec).collect()
    }

    /// Takes what [`Self::all_written`] gave; false, and nothing changed, when it is not of these files.
    pub(super) fn set_written(&mut self, written: &[Vec<u8>]) -> bool {
        let own = self.all_written();
        let lengths = |all: &[Vec<u8>]| all.iter().map(Vec::len).collect::<Vec<_>>();
        if lengths(&own) != lengths(written) {
            return false;
        }
        let files = &self.files;
        let by_key = &mut self.by_key;
        let is_writable = |key: &&u16| by_key.get(key).is_some_and(Item::is_writable);
        let keys: Vec<u16> = files.values().filter(is_writable).copied().collect();
        for (key, content) in keys.iter().zip(written) {
            if let Some(item) = by_key.get_mut(key) {
                item.written.clone_from(content);
            }
        }
        true
    }
}
