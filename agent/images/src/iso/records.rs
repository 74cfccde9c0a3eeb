//! Descriptors, path tables and directory records.

use std::iter::repeat_n;

use super::file::SECTOR_BYTES;
use super::tree::{Directory, Entry, Node, Tree};

const FIRST_DESCRIPTOR: usize = 16;
/// Sector of the field that says that Rock Ridge is used: too long for the root's record.
const ER_SECTOR: usize = 19;
const FIRST_TABLE: usize = 20;

/// `S_IFDIR | 0555`, `S_IFREG | 0444`.
const DIRECTORY_MODE: u32 = 0o040_555;
const FILE_MODE: u32 = 0o100_444;

/// RRIP 1991A, section 5: identifier, descriptor and source.
const ER: [&str; 3] = [
    "RRIP_1991A",
    "THE ROCK RIDGE INTERCHANGE PROTOCOL PROVIDES SUPPORT FOR POSIX FILE SYSTEM SEMANTICS",
    "PLEASE CONTACT DISC PUBLISHER FOR SPECIFICATION SOURCE.  SEE PUBLISHER IDENTIFIER IN PRIMARY VOLUME DESCRIPTOR FOR CONTACT INFORMATION.",
];

/// Which of the two trees of directories.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// ISO 9660's, with Rock Ridge.
    Short,
    /// Joliet's.
    Joliet,
}

/// Where a directory or file is.
#[derive(Clone, Copy, Default)]
struct Extent {
    sector: usize,
    bytes: usize,
}

/// Whose record it is, and what Rock Ridge says of it.
enum Of<'a> {
    /// The directory itself, of which the root's has fields of its own.
    Own {
        is_root: bool,
    },
    Parent,
    Entry(&'a Entry<'a>),
}

/// One tree of directories as it is laid out.
struct Side {
    names: Names,
    little_table: usize,
    big_table: usize,
    table_bytes: usize,
    /// In the order of the directories.
    directories: Vec<Extent>,
}

/// Writes one volume.
pub(super) struct Writer<'a> {
    label: &'a str,
    tree: Tree<'a>,
    image: Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(label: &'a str, tree: Tree<'a>) -> Self {
        let image = Vec::new();
        Self { label, tree, image }
    }

    pub(super) fn write(mut self) -> Vec<u8> {
        let mut next = FIRST_TABLE;
        let sides = [Names::Short, Names::Joliet].map(|names| self.lay_out(names, &mut next));
        let mut files = vec![Vec::new(); self.tree.directories.len()];
        for (directory, extents) in self.tree.directories.iter().zip(&mut files) {
            for entry in &directory.entries {
                let Node::File(data) = entry.node else {
                    extents.push(Extent::default());
                    continue;
                };
                let bytes = data.len();
                extents.push(Extent {
                    sector: next,
                    bytes,
                });
                next += bytes.div_ceil(SECTOR_BYTES);
            }
        }
        self.image = vec![0; next * SECTOR_BYTES];
        let [short, joliet] = &sides;
        self.put(FIRST_DESCRIPTOR, &self.descriptor(short, next));
        self.put(FIRST_DESCRIPTOR + 1, &self.descriptor(joliet, next));
        self.put(FIRST_DESCRIPTOR + 2, b"\xffCD001\x01");
        self.put(ER_SECTOR, &extension_reference());
        for side in &sides {
            self.put(
                side.little_table,
                &self.path_table(side, u32::to_le_bytes, u16::to_le_bytes),
            );
            self.put(
                side.big_table,
                &self.path_table(side, u32::to_be_bytes, u16::to_be_bytes),
            );
            for (number, place) in side.directories.iter().enumerate() {
                let records = self.records(side, number, &files);
                self.put(place.sector, &records);
            }
        }
        for (number, extents) in files.iter().enumerate() {
            for (index, extent) in extents.iter().enumerate() {
                let entry = self
                    .tree
                    .directories
                    .get(number)
                    .and_then(|it| it.entries.get(index));
                if let Some(Entry {
                    node: Node::File(data),
                    ..
                }) = entry
                {
                    let data: &'a [u8] = data;
                    self.put(extent.sector, data);
                }
            }
        }
        self.image
    }

    fn put(&mut self, sector: usize, bytes: &[u8]) {
        let start = sector * SECTOR_BYTES;
        if let Some(place) = self.image.get_mut(start..start + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// Gives path tables and directories their sectors, from `next` on.
    fn lay_out(&self, names: Names, next: &mut usize) -> Side {
        let mut take = |bytes: usize| {
            let sector = *next;
            *next += bytes.div_ceil(SECTOR_BYTES);
            sector
        };
        let entries = self.tree.directories.iter();
        let table_bytes = entries
            .map(|directory| (8 + directory.identifier(names).len()).next_multiple_of(2))
            .sum();
        let (little_table, big_table) = (take(table_bytes), take(table_bytes));
        let mut side = Side {
            names,
            little_table,
            big_table,
            table_bytes,
            directories: vec![Extent::default(); self.tree.directories.len()],
        };
        // Where things are does not change how long a record is.
        let files: Vec<Vec<Extent>> = Vec::new();
        for number in 0..self.tree.directories.len() {
            let bytes = self.records(&side, number, &files).len();
            let sector = take(bytes);
            if let Some(place) = side.directories.get_mut(number) {
                *place = Extent { sector, bytes };
            }
        }
        side
    }

    /// The records of a directory, padded to whole sectors, of which no record is in two.
    fn records(&self, side: &Side, number: usize, files: &[Vec<Extent>]) -> Vec<u8> {
        let Some(directory) = self.tree.directories.get(number) else {
            return Vec::new();
        };
        let place = |number: usize| side.directories.get(number).copied().unwrap_or_default();
        let is_root = number == 0;
        let own = record(side.names, &[0], place(number), true, &Of::Own { is_root });
        let parent = record(side.names, &[1], place(directory.parent), true, &Of::Parent);
        let mut sorted: Vec<(usize, &Entry<'_>)> = directory.entries.iter().enumerate().collect();
        if side.names == Names::Joliet {
            sorted.sort_by_key(|(_, entry)| utf16(&entry.name));
        }
        let entries = sorted.into_iter().map(|(index, entry)| {
            let (extent, is_directory) = match entry.node {
                Node::Directory(number) => (place(number), true),
                Node::File(_) => {
                    let extent = files.get(number).and_then(|extents| extents.get(index));
                    (extent.copied().unwrap_or_default(), false)
                }
            };
            let name = entry.identifier(side.names);
            record(side.names, &name, extent, is_directory, &Of::Entry(entry))
        });
        let mut bytes: Vec<u8> = Vec::new();
        for record in [own, parent].into_iter().chain(entries) {
            let left = bytes.len().next_multiple_of(SECTOR_BYTES) - bytes.len();
            if left < record.len() {
                bytes.extend(repeat_n(0, left));
            }
            bytes.extend(record);
        }
        bytes.resize(bytes.len().next_multiple_of(SECTOR_BYTES), 0);
        bytes
    }

    fn path_table(
        &self,
        side: &Side,
        long: fn(u32) -> [u8; 4],
        short: fn(u16) -> [u8; 2],
    ) -> Vec<u8> {
        let mut table = Vec::new();
        for (directory, place) in self.tree.directories.iter().zip(&side.directories) {
            let name = directory.identifier(side.names);
            table.extend([byte(name.len()), 0]);
            table.extend(long(word(place.sector)));
            table.extend(short(u16::try_from(directory.parent + 1).unwrap_or(1)));
            table.extend(&name);
            table.resize(table.len().next_multiple_of(2), 0);
        }
        table
    }

    /// A volume descriptor (ECMA-119, 8.4 and 8.5).
    fn descriptor(&self, side: &Side, sectors: usize) -> Vec<u8> {
        let is_joliet = side.names == Names::Joliet;
        let text = |text: &str, bytes: usize| -> Vec<u8> {
            let mut field = if is_joliet {
                utf16(text)
            } else {
                text.as_bytes().to_vec()
            };
            let pad: &[u8] = if is_joliet { &[0, b' '] } else { b" " };
            while field.len() + pad.len() <= bytes {
                field.extend(pad);
            }
            field.resize(bytes, 0);
            field
        };
        let mut it = vec![if is_joliet { 2 } else { 1 }];
        it.extend(b"CD001\x01\0");
        it.extend(text("LINUX", 32));
        it.extend(text(self.label, 32));
        it.extend([0; 8]);
        it.extend(both(word(sectors)));
        let mut escapes = [0; 32];
        if is_joliet {
            // UCS-2 level 3.
            escapes[..3].copy_from_slice(b"%/E");
        }
        it.extend(escapes);
        it.extend(both_short(1));
        it.extend(both_short(1));
        it.extend(both_short(2048));
        it.extend(both(word(side.table_bytes)));
        it.extend(word(side.little_table).to_le_bytes());
        it.extend([0; 4]);
        it.extend(word(side.big_table).to_be_bytes());
        it.extend([0; 4]);
        let root = side.directories.first().copied().unwrap_or_default();
        it.extend(record(Names::Joliet, &[0], root, true, &Of::Parent));
        for bytes in [128, 128, 128, 128, 37, 37, 37] {
            it.extend(text("", bytes));
        }
        // Made and changed in 1970, never expires, effective at once.
        for time in ["1970010100000000", "1970010100000000"] {
            it.extend(time.as_bytes());
            it.push(0);
        }
        it.extend([b'0'; 16]);
        it.push(0);
        it.extend([b'0'; 16]);
        it.extend([0, 1]);
        it.resize(SECTOR_BYTES, 0);
        it
    }
}

impl Directory<'_> {
    fn identifier(&self, names: Names) -> Vec<u8> {
        match names {
            _ if self.name.is_empty() => vec![0],
            Names::Short => self.short.clone(),
            Names::Joliet => utf16(&self.name),
        }
    }
}

impl Entry<'_> {
    fn identifier(&self, names: Names) -> Vec<u8> {
        match names {
            Names::Short => self.short.clone(),
            Names::Joliet => utf16(&self.name),
        }
    }
}

/// A directory record (ECMA-119, 9.1) with its fields of Rock Ridge.
fn record(
    names: Names,
    identifier: &[u8],
    extent: Extent,
    is_directory: bool,
    of: &Of<'_>,
) -> Vec<u8> {
    let mut it = vec![0, 0];
    it.extend(both(word(extent.sector)));
    it.extend(both(word(extent.bytes)));
    // Year since 1900, month, day, and the rest zeros.
    it.extend([70, 1, 1, 0, 0, 0, 0]);
    it.extend([if is_directory { 2 } else { 0 }, 0, 0]);
    it.extend(both_short(1));
    it.push(byte(identifier.len()));
    it.extend(identifier);
    it.resize(it.len().next_multiple_of(2), 0);
    if names == Names::Short {
        rock_ridge(&mut it, is_directory, of);
        it.resize(it.len().next_multiple_of(2), 0);
    }
    let length = byte(it.len());
    if let Some(first) = it.first_mut() {
        *first = length;
    }
    it
}

fn rock_ridge(it: &mut Vec<u8>, is_directory: bool, of: &Of<'_>) {
    let is_root = matches!(of, Of::Own { is_root: true });
    if is_root {
        it.extend(b"SP\x07\x01\xbe\xef\0");
    }
    it.extend(b"PX\x24\x01");
    let (mode, links) = if is_directory {
        (DIRECTORY_MODE, 2)
    } else {
        (FILE_MODE, 1)
    };
    for value in [mode, links, 0, 0] {
        it.extend(both(value));
    }
    if let Of::Entry(entry) = of {
        it.extend(b"NM");
        it.extend([byte(5 + entry.name.len()), 1, 0]);
        it.extend(entry.name.as_bytes());
    }
    if is_root {
        it.extend(b"CE\x1c\x01");
        for value in [word(ER_SECTOR), 0, word(extension_reference().len())] {
            it.extend(both(value));
        }
    }
}

/// The field that names the extension, as a continuation of the root's record.
fn extension_reference() -> Vec<u8> {
    let [identifier, descriptor, source] = ER.map(|text| byte(text.len()));
    let length = ER.iter().map(|text| text.len()).sum::<usize>() + 8;
    let mut it = b"ER".to_vec();
    it.extend([byte(length), 1, identifier, descriptor, source, 1]);
    it.extend(ER.concat().as_bytes());
    it
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

/// A number in both byte orders.
fn both(value: u32) -> Vec<u8> {
    [value.to_le_bytes(), value.to_be_bytes()].concat()
}

fn both_short(value: u16) -> Vec<u8> {
    [value.to_le_bytes(), value.to_be_bytes()].concat()
}

/// Lengths and sectors fit: names and volumes are bounded.
fn byte(length: usize) -> u8 {
    u8::try_from(length).unwrap_or(u8::MAX)
}

fn word(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
