//! Transactions: messages that the kernel carries out together or not at all.

use std::io;

use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::libc;

use super::attributes::Attributes;
use super::chain::Chain;
use super::expression::Rule;
use super::kinds::Family;
use super::set::{Field, MAX_LEARNED, Set, Value};

const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NFTABLES: u16 = 10;

pub(super) const NEW_TABLE: u16 = 0;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
const DELETE_RULE: u16 = 8;
const NEW_SET: u16 = 9;
const NEW_ELEMENTS: u16 = 12;
const DELETE_ELEMENTS: u16 = 14;

const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

pub(super) const ERROR: u16 = 2;
pub(super) const HEADER_BYTES: usize = 16;

/// Elements that go with one message: an attribute has at most 64 KiB.
const ELEMENTS: usize = 500;

/// `NFT_SET_CONCAT`
const CONCATENATED: u32 = 0x80;
/// `NFT_SET_EVAL`
const LEARNING: u32 = 0x20;

pub(super) const GET_TABLE: u16 = 1;
pub(super) const TABLE_USERDATA: u16 = 6;
/// `NFTA_RULE_USERDATA`
pub(super) const RULE_USERDATA: u16 = 7;

pub(super) const GET_ELEMENTS: u16 = 13;
/// `NFTA_SET_USERDATA`, with `NFTNL_UDATA_SET_KEYBYTEORDER` in it.
const SET_USERDATA: u16 = 13;
const HOST_ORDER: u32 = 1;
/// `NFTA_SET_EXPR`: what each element of a set is given.
const SET_EXPRESSION: u16 = 17;
/// `NFTA_SET_ELEM_LIST_ELEMENTS`, `NFTA_SET_ELEM_EXPR`, `NFTA_EXPR_DATA` and `NFTA_COUNTER_PACKETS`: the way to an
/// element's count.
const TO_PACKETS: [u16; 5] = [3, 1, 7, 2, 2];

/// A family and the name of a table in it.
pub(crate) type TableName<'a> = (Family, &'a str);

/// Messages of one transaction.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(super) bytes: Vec<u8>,
    sequence: u32,
    /// Where the flags of the last message are: it alone is acknowledged.
    last_flags: Option<usize>,
}

impl Default for Batch {
    fn default() -> Self {
        let mut batch = Self {
            bytes: Vec::new(),
            sequence: 0,
            last_flags: None,
        };
        batch.control(BATCH_BEGIN);
        batch
    }
}

impl Batch {
    pub(crate) fn add_table(&mut self, family: Family, name: &str) {
        let mut attributes = Attributes::default();
        attributes.text(1, name);
        self.message(NEW_TABLE, CREATE, family, &attributes);
    }

    /// The same with a comment, which `nft` shows; where there is one of its name the transaction fails.
    pub(crate) fn create_table(&mut self, family: Family, name: &str, comment: &str) {
        let mut attributes = Attributes::default();
        attributes.text(1, name);
        attributes.bytes(TABLE_USERDATA, &commented(comment));
        self.message(NEW_TABLE, CREATE | EXCLUSIVE, family, &attributes);
    }

    pub(crate) fn delete_table(&mut self, family: Family, name: &str) {
        let mut attributes = Attributes::default();
        attributes.text(1, name);
        self.message(DELETE_TABLE, 0, family, &attributes);
    }

    pub(crate) fn add_chain(&mut self, (family, table): TableName<'_>, chain: &Chain) {
        let mut attributes = Attributes::default();
        attributes.text(1, table);
        attributes.text(3, chain.name);
        if let Some(base) = &chain.base {
            attributes.nested(4, |hook| {
                hook.number(1, base.hook.number());
                hook.bytes(2, &base.priority.to_be_bytes());
            });
            attributes.number(5, u32::from(!base.drops));
            attributes.text(7, base.kind.name());
        }
        self.message(NEW_CHAIN, CREATE, family, &attributes);
    }

    pub(crate) fn add_rule(&mut self, (family, table): TableName<'_>, chain: &str, rule: &Rule) {
        let mut attributes = Attributes::default();
        attributes.text(1, table);
        attributes.text(2, chain);
        attributes.nested(4, |list| rule.encode(list));
        attributes.bytes(RULE_USERDATA, &rule.mark());
        self.message(NEW_RULE, CREATE | APPEND, family, &attributes);
    }

    /// Takes all rules of a chain away.
    pub(crate) fn flush(&mut self, (family, table): TableName<'_>, chain: &str) {
        let mut attributes = Attributes::default();
        attributes.text(1, table);
        attributes.text(2, chain);
        self.message(DELETE_RULE, 0, family, &attributes);
    }

    pub(crate) fn add_set(&mut self, (family, table): TableName<'_>, set: &Set) {
        let length = set.fields.iter().map(|field| field.padded_bytes()).sum();
        let kind = |kind, field: &Field| kind << 6 | field.shown_as();
        let mut attributes = Attributes::default();
        attributes.text(1, table);
        attributes.text(2, set.name);
        let is_concatenated = set.fields.len() > 1;
        let concatenated = if is_concatenated { CONCATENATED } else { 0 };
        let learning = if set.learns { LEARNING } else { 0 };
        attributes.number(3, concatenated | learning);
        attributes.number(4, set.fields.iter().fold(0, kind));
        attributes.number(5, length);
        attributes.number(10, 1);
        if is_concatenated || set.learns {
            attributes.nested(9, |description| describe(set, description));
        }
        // `nft` takes names for numbers of the wrong byte order otherwise. The kernel does not look at it.
        if let [Field::InterfaceName] = set.fields.as_slice() {
            let [a, b, c, d] = HOST_ORDER.to_ne_bytes();
            attributes.bytes(SET_USERDATA, &[0, 4, a, b, c, d]);
        }
        if set.counts {
            attributes.nested(SET_EXPRESSION, |counter| counter.text(1, "counter"));
        }
        self.message(NEW_SET, CREATE, family, &attributes);
    }

    pub(crate) fn add_elements(&mut self, table: TableName<'_>, set: &str, all: &[Vec<Value>]) {
        self.elements((NEW_ELEMENTS, CREATE), table, set, all);
    }

    pub(crate) fn delete_elements(&mut self, table: TableName<'_>, set: &str, all: &[Vec<Value>]) {
        self.elements((DELETE_ELEMENTS, 0), table, set, all);
    }

    /// The same with elements as [`Netfilter::elements_of`] gives them.
    pub(crate) fn delete_keys(&mut self, table: TableName<'_>, set: &str, keys: &[Vec<u8>]) {
        self.keys((DELETE_ELEMENTS, 0), table, set, keys);
    }

    /// Adds such elements.
    pub(super) fn add_keys(&mut self, table: TableName<'_>, set: &str, keys: &[Vec<u8>]) {
        self.keys((NEW_ELEMENTS, CREATE), table, set, keys);
    }

    fn elements(&mut self, kind: (u16, u16), table: TableName<'_>, set: &str, all: &[Vec<Value>]) {
        let keys = all
            .iter()
            .map(|element| element.iter().flat_map(Value::padded).collect());
        self.keys(kind, table, set, &keys.collect::<Vec<_>>());
    }

    fn keys(
        &mut self,
        (kind, flags): (u16, u16),
        (family, table): TableName<'_>,
        set: &str,
        keys: &[Vec<u8>],
    ) {
        for some in keys.chunks(ELEMENTS) {
            let mut attributes = Attributes::default();
            attributes.text(1, table);
            attributes.text(2, set);
            attributes.nested(3, |list| {
                for key in some {
                    list.nested(1, |one| one.nested(1, |data| data.bytes(1, key)));
                }
            });
            self.message(kind, flags, family, &attributes);
        }
    }

    pub(super) fn message(
        &mut self,
        kind: u16,
        flags: u16,
        family: Family,
        attributes: &Attributes,
    ) {
        self.last_flags = Some(self.bytes.len() + 6);
        self.header(
            NFTABLES << 8 | kind,
            REQUEST | flags,
            attributes.as_bytes().len(),
        );
        self.bytes.extend([family.number(), 0, 0, 0]);
        self.bytes.extend(attributes.as_bytes());
    }

    fn control(&mut self, kind: u16) {
        self.header(kind, REQUEST, 0);
        self.bytes.extend([0, 0]);
        self.bytes.extend(NFTABLES.to_be_bytes());
    }

    /// The header of a message and of netfilter's own part of it, which has four bytes.
    fn header(&mut self, kind: u16, flags: u16, length: usize) {
        let length = u32::try_from(HEADER_BYTES + 4 + length).unwrap_or(u32::MAX);
        self.sequence += 1;
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend(self.sequence.to_ne_bytes());
        self.bytes.extend(0_u32.to_ne_bytes());
    }

    /// A question, which is no transaction.
    pub(super) fn question() -> Self {
        Self {
            bytes: Vec::new(),
            sequence: 0,
            last_flags: None,
        }
    }

    /// The transaction as it is sent, and the number of the message that is acknowledged.
    fn finish(mut self) -> (Vec<u8>, u32) {
        if let Some(flags) = self
            .last_flags
            .and_then(|at| self.bytes.get_mut(at..at + 2))
        {
            let with_ack = u16::from_ne_bytes([flags[0], flags[1]]) | ACK;
            flags.copy_from_slice(&with_ack.to_ne_bytes());
        }
        let acknowledged = self.sequence;
        self.control(BATCH_END);
        (self.bytes, acknowledged)
    }
}

/// A socket to netfilter of one network namespace: the one in which it was made.
#[derive(Debug)]
pub(crate) struct Netfilter(pub(super) Socket);

impl Netfilter {
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    /// How many packets were found in an element of a set that counts; `None`: it is not there.
    pub(crate) fn packets_of(
        &self,
        table: TableName<'_>,
        set: &str,
        element: Vec<Value>,
    ) -> io::Result<Option<u64>> {
        let mut question = Batch::question();
        question.elements((GET_ELEMENTS, 0), table, set, &[element]);
        let answer = self.ask(&question, NEW_ELEMENTS)?;
        let packets = answer.and_then(|answer| {
            let mut found = answer.as_slice();
            for kind in TO_PACKETS {
                found = Attributes::find(found, kind)?;
            }
            found.try_into().map(u64::from_be_bytes).ok()
        });
        Ok(packets)
    }

    /// Whether a set has an element; where there is no such set, it has not.
    pub(crate) fn has_element(
        &self,
        table: TableName<'_>,
        set: &str,
        element: Vec<Value>,
    ) -> io::Result<bool> {
        let mut question = Batch::question();
        question.elements((GET_ELEMENTS, 0), table, set, &[element]);
        Ok(self.ask(&question, NEW_ELEMENTS)?.is_some())
    }

    /// The attributes of an answer of that kind; `None` for any other, which is an error's.
    pub(super) fn ask(&self, question: &Batch, wanted: u16) -> io::Result<Option<Vec<u8>>> {
        self.0.send(&question.bytes, 0)?;
        let mut answer = Vec::with_capacity(8192);
        self.0.recv(&mut answer, libc::MSG_DONTWAIT)?;
        let is_wanted = header(&answer).is_some_and(|(_, kind, _)| kind == NFTABLES << 8 | wanted);
        let attributes = answer.split_off((HEADER_BYTES + 4).min(answer.len()));
        Ok(is_wanted.then_some(attributes))
    }

    /// Has the kernel carry a transaction out, as a whole or not at all.
    pub(crate) fn commit(&self, batch: Batch) -> io::Result<()> {
        if batch.last_flags.is_none() {
            return Ok(());
        }
        let (bytes, acknowledged) = batch.finish();
        let sent = self.0.send(&bytes, 0)?;
        if sent != bytes.len() {
            return Err(io::Error::other("the kernel took a part of a transaction"));
        }
        // The kernel has answered by the time that it has taken the transaction.
        let mut done = false;
        loop {
            let mut answer = Vec::with_capacity(8192);
            match self.0.recv(&mut answer, libc::MSG_DONTWAIT) {
                Ok(0) => break,
                Ok(_) => done |= self::answer(&answer, acknowledged)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if done {
            return Ok(());
        }
        Err(io::Error::other("the kernel did not answer a transaction"))
    }
}

/// Its greatest size, and the sizes of its fields.
fn describe(set: &Set, description: &mut Attributes) {
    if set.learns {
        description.number(1, MAX_LEARNED);
    }
    if set.fields.len() > 1 {
        description.nested(2, |fields| {
            for field in &set.fields {
                fields.nested(1, |one| one.number(1, field.padded_bytes()));
            }
        });
    }
}

/// Whether the message of that number was acknowledged; the first error.
fn answer(mut bytes: &[u8], acknowledged: u32) -> io::Result<bool> {
    let mut done = false;
    while let Some((length, kind, sequence)) = header(bytes) {
        if kind == ERROR
            && let Some(code) = bytes.get(HEADER_BYTES..HEADER_BYTES + 4)
            && let Ok(code) = code.try_into().map(i32::from_ne_bytes)
        {
            if code != 0 {
                return Err(Errno::from_raw(code.saturating_neg()).into());
            }
            done |= sequence == acknowledged;
        }
        let next = length.next_multiple_of(4).max(HEADER_BYTES);
        bytes = bytes.get(next..).unwrap_or_default();
    }
    Ok(done)
}

/// Length, type and number of the first message.
pub(super) fn header(bytes: &[u8]) -> Option<(usize, u16, u32)> {
    let word = |at: usize| -> Option<u32> {
        let word = bytes.get(at..at + 4)?;
        word.try_into().map(u32::from_ne_bytes).ok()
    };
    let kind = bytes.get(4..6)?.try_into().map(u16::from_ne_bytes).ok()?;
    Some((usize::try_from(word(0)?).ok()?, kind, word(8)?))
}

/// A comment as `nft` writes it: kind, length, and text that ends with a zero.
fn commented(text: &str) -> Vec<u8> {
    let text = text.as_bytes();
    let text = text
        .get(..text.len().min(MAX_COMMENT_BYTES))
        .unwrap_or_default();
    let mut bytes = vec![0, u8::try_from(text.len() + 1).unwrap_or(u8::MAX)];
    bytes.extend(text);
    bytes.push(0);
    bytes
}

/// `nft` allows for as many.
const MAX_COMMENT_BYTES: usize = 127;

pub(super) fn comment(userdata: &[u8]) -> Option<String> {
    let [0, length, rest @ ..] = userdata else {
        return None;
    };
    let text = rest.get(..usize::from(*length).checked_sub(1)?)?;
    String::from_utf8(text.to_vec()).ok()
}
