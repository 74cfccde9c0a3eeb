//! Descriptors, path tables and directory records.

use super::file::SECTOR_BYTES;
use super::tree::{Entry, Node, Tree};

const FIRST_DESCRIPTOR: usize = 16;
/// Sector of the field that says that Rock Ridge is used: too long for the root's record.
const ER_SECTOR: usize = 19;
const FIRST_TABLE: usize = 20;

/// RRIP 1991A, section 5: identifier, descriptor and source.
const ER: [&str; 3] = [
    "RRIP_1991A",
    "THE ROCK RIDGE INTERCHANGE PROTOCOL PROVIDES SUPPORT FOR POSIX FILE SYSTEM SEMANTICS",
    "PLEASE CONTACT DISC PUBLISHER FOR SPECIFICATION SOURCE.  SEE PUBLISHER IDENTIFIER IN PRIMARY VOLUME DESCRIPTOR FOR CONTACT INFORMATION.",
];

/// Made and changed in 1970, never expires, effective at once (ECMA-119, 8.4.26.1).
const TIMES: &[u8; 68] =
    b"1970010100000000\x001970010100000000\x000000000000000000\x000000000000000000\x00";

/// Flags of a record, `st_mode` and `st_nlink`.
struct Kind(u8, usize, usize);
/// `S_IFDIR | 0555`.
const DIRECTORY: Kind = Kind(2, 0o040_555, 2);
/// `S_IFREG | 0444`.
const FILE: Kind = Kind(0, 0o100_444, 1);

/// Which of the two trees of directories.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// ISO 9660's, with Rock Ridge.
    Short,
    /// Joliet's.
    Joliet,
}

impl Names {
    /// What directory records and path tables have; the root has no name.
    fn identifier(self, name: &str, short: &str) -> Vec<u8> {
        match self {
            _ if name.is_empty() => vec![0],
            Self::Short => short.into(),
            Self::Joliet => utf16(name),
        }
    }

    /// A field of a descriptor.
    fn field(self, text: &str, bytes: usize) -> Vec<u8> {
        let (mut field, blank) = match self {
            Self::Short => (text.into(), &b" "[..]),
            Self::Joliet => (utf16(text), &b"\0 "[..]),
        };
        field.extend(blank.repeat((bytes - field.len()) / blank.len()));
        field.resize(bytes, 0);
        field
    }
}

/// Where something is.
#[derive(Clone, Copy, Default)]
struct Extent {
    sector: usize,
    bytes: usize,
}

/// One tree of directories as it is laid out.
struct Side<'a> {
    names: Names,
    tree: &'a Tree<'a>,
    little_table: Extent,
    big_table: Extent,
    /// In the order of the directories.
    directories: Vec<Extent>,
}

/// Writes one volume.
pub(super) fn write(label: &str, tree: &Tree<'_>) -> Vec<u8> {
    let mut next = FIRST_TABLE;
    let sides = [Names::Short, Names::Joliet].map(|names| Side::new(names, tree, &mut next));
    let files = tree.files.iter().map(|data| take(&mut next, data.len()));
    let files: Vec<Extent> = files.collect();
    let mut image = vec![0; next * SECTOR_BYTES];
    let mut put = |sector: usize, bytes: &[u8]| {
        let start = sector * SECTOR_BYTES;
        if let Some(place) = image.get_mut(start..start + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    for (number, side) in sides.iter().enumerate() {
        put(FIRST_DESCRIPTOR + number, &side.descriptor(label, next));
        let little = side.path_table(u32::to_le_bytes, u16::to_le_bytes);
        put(side.little_table.sector, &little);
        let big = side.path_table(u32::to_be_bytes, u16::to_be_bytes);
        put(side.big_table.sector, &big);
        for (number, place) in side.directories.iter().enumerate() {
            put(place.sector, &side.records(number, &files));
        }
    }
    put(FIRST_DESCRIPTOR + sides.len(), b"\xffCD001\x01");
    put(ER_SECTOR, &extension_reference());
    for (data, place) in tree.files.iter().zip(&files) {
        put(place.sector, data);
    }
    image
}

/// The next sectors.
fn take(next: &mut usize, bytes: usize) -> Extent {
    let sector = *next;
    *next += bytes.div_ceil(SECTOR_BYTES);
    Extent { sector, bytes }
}

impl<'a> Side<'a> {
    /// Gives path tables and directories their sectors, from `next` on.
    fn new(names: Names, tree: &'a Tree<'a>, next: &mut usize) -> Self {
        let mut side = Self {
            names,
            tree,
            little_table: Extent::default(),
            big_table: Extent::default(),
            directories: vec![Extent::default(); tree.directories.len()],
        };
        // Where things are changes neither how long a table is nor how long records are.
        let table_bytes = side.path_table(u32::to_le_bytes, u16::to_le_bytes).len();
        side.little_table = take(next, table_bytes);
        side.big_table = take(next, table_bytes);
        let lengths = (0..tree.directories.len()).map(|number| side.records(number, &[]).len());
        side.directories = lengths.map(|bytes| take(next, bytes)).collect();
        side
    }

    fn directory(&self, number: usize) -> Extent {
        self.directories.get(number).copied().unwrap_or_default()
    }

    /// The records of a directory, padded to whole sectors, of which no record is in two.
    fn records(&self, number: usize, files: &[Extent]) -> Vec<u8> {
        let Some(directory) = self.tree.directories.get(number) else {
            return Vec::new();
        };
        let rock_ridge = |fields: Vec<u8>| match self.names {
            Names::Short => fields,
            Names::Joliet => Vec::new(),
        };
        let (place, parent) = (self.directory(number), self.directory(directory.parent));
        let mut records = vec![
            record(
                &[0],
                place,
                &DIRECTORY,
                &rock_ridge(own_fields(number == 0)),
            ),
            record(&[1], parent, &DIRECTORY, &rock_ridge(posix(&DIRECTORY))),
        ];
        let mut sorted: Vec<&Entry<'_>> = directory.entries.iter().collect();
        if self.names == Names::Joliet {
            sorted.sort_by_key(|entry| utf16(entry.name));
        }
        for entry in sorted {
            let (extent, kind) = match entry.node {
                Node::Directory(number) => (self.directory(number), DIRECTORY),
                Node::File(number) => (files.get(number).copied().unwrap_or_default(), FILE),
            };
            let head = [b'N', b'M', byte(5 + entry.name.len()), 1, 0];
            let fields = [&posix(&kind), &head[..], entry.name.as_bytes()].concat();
            let identifier = self.names.identifier(entry.name, &entry.short);
            records.push(record(&identifier, extent, &kind, &rock_ridge(fields)));
        }
        let mut bytes: Vec<u8> = Vec::new();
        for record in records {
            let left = bytes.len().next_multiple_of(SECTOR_BYTES) - bytes.len();
            if left < record.len() {
                bytes.resize(bytes.len() + left, 0);
            }
            bytes.extend(record);
        }
        bytes.resize(bytes.len().next_multiple_of(SECTOR_BYTES), 0);
        bytes
    }

    fn path_table(&self, long: fn(u32) -> [u8; 4], short: fn(u16) -> [u8; 2]) -> Vec<u8> {
        let mut table = Vec::new();
        for (directory, place) in self.tree.directories.iter().zip(&self.directories) {
            let name = self.names.identifier(directory.name, &directory.short);
            table.extend([byte(name.len()), 0]);
            table.extend(long(word(place.sector)));
            table.extend(short(u16::try_from(directory.parent + 1).unwrap_or(1)));
            table.extend(&name);
            table.resize(table.len().next_multiple_of(2), 0);
        }
        table
    }

    /// A volume descriptor (ECMA-119, 8.4 and 8.5).
    fn descriptor(&self, label: &str, sectors: usize) -> Vec<u8> {
        // UCS-2 level 3.
        let (number, escapes) = match self.names {
            Names::Short => (1, [0; 3]),
            Names::Joliet => (2, *b"%/E"),
        };
        let mut it = [
            &[number][..],
            b"CD001\x01\0",
            &self.names.field("LINUX", 32),
            &self.names.field(label, 32),
            &[0; 8],
            &both(sectors),
            &escapes,
            &[0; 29],
            // One volume, the first; the size of a sector.
            &[1, 0, 0, 1, 1, 0, 0, 1, 0, 8, 8, 0],
            &both(self.little_table.bytes),
            &word(self.little_table.sector).to_le_bytes(),
            &[0; 4],
            &word(self.big_table.sector).to_be_bytes(),
            &[0; 4],
            &record(&[0], self.directory(0), &DIRECTORY, &[]),
        ]
        .concat();
        for bytes in [128, 128, 128, 128, 37, 37, 37] {
            it.extend(self.names.field("", bytes));
        }
        it.extend(TIMES);
        it.push(1);
        it.resize(SECTOR_BYTES, 0);
        it
    }
}

/// A directory record (ECMA-119, 9.1) with its fields of Rock Ridge.
fn record(identifier: &[u8], extent: Extent, kind: &Kind, fields: &[u8]) -> Vec<u8> {
    let mut it = [
        &[0, 0][..],
        &both(extent.sector),
        &both(extent.bytes),
        // Year since 1900, month, day, and the rest zeros.
        &[70, 1, 1, 0, 0, 0, 0],
        // No interleaving, on the first volume.
        &[kind.0, 0, 0, 1, 0, 0, 1, byte(identifier.len())],
        identifier,
    ]
    .concat();
    it.resize(it.len().next_multiple_of(2), 0);
    it.extend(fields);
    it.resize(it.len().next_multiple_of(2), 0);
    let length = byte(it.len());
    it.splice(..1, [length]);
    it
}

/// `PX` (RRIP 1991A, 4.1.1): mode and links; everything is root's.
fn posix(kind: &Kind) -> Vec<u8> {
    let numbers = [kind.1, kind.2, 0, 0].map(both);
    [b"PX\x24\x01", &numbers.concat()[..]].concat()
}

/// Of a directory itself. The root's have `SP` and `CE` (SUSP 1.10, 5.3 and 5.1): extensions are used, and which ones stands elsewhere.
fn own_fields(is_root: bool) -> Vec<u8> {
    let own = posix(&DIRECTORY);
    if !is_root {
        return own;
    }
    let place = [ER_SECTOR, 0, extension_reference().len()].map(both);
    let used = b"SP\x07\x01\xbe\xef\0";
    [used, &own[..], b"CE\x1c\x01", &place.concat()].concat()
}

/// The field that names the extension, as a continuation of the root's record.
fn extension_reference() -> Vec<u8> {
    let [identifier, descriptor, source] = ER.map(|text| byte(text.len()));
    let text = ER.concat();
    let head = [byte(text.len() + 8), 1, identifier, descriptor, source, 1];
    [b"ER", &head[..], text.as_bytes()].concat()
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

/// A number in both byte orders.
fn both(value: usize) -> Vec<u8> {
    let value = word(value);
    [value.to_le_bytes(), value.to_be_bytes()].concat()
}

/// Lengths and sectors fit: names and volumes are bounded.
fn byte(length: usize) -> u8 {
    u8::try_from(length).unwrap_or(u8::MAX)
}

fn word(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
