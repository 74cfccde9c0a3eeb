//! A table as the kernel has it.

use std::io;

use super::attributes::Attributes;
use super::batch::{
    Batch, GET_TABLE, NEW_TABLE, Netfilter, RULE_USERDATA, TABLE_USERDATA, TableName, comment,
};
use super::chain::Chain;

const GET_CHAIN: u16 = 4;
const GET_RULE: u16 = 7;
const GET_SET: u16 = 10;

const TABLE_FLAGS: u16 = 2;
const SET_FLAGS: u16 = 3;
/// `NFT_SET_ANONYMOUS`: of a rule, with which it goes.
const ANONYMOUS: u32 = 1;

/// What is compared with a table as it is wanted.
#[derive(Debug)]
pub(super) struct Present {
    pub(super) comment: Option<String>,
    /// Somebody has switched it off.
    pub(super) is_dormant: bool,
    pub(super) sets: Vec<String>,
    pub(super) chains: Vec<PresentChain>,
}

#[derive(Debug)]
pub(super) struct PresentChain {
    pub(super) name: String,
    pub(super) base: Option<Hooked>,
    /// What is kept beside each rule: see [`super::Rule::mark`].
    pub(super) marks: Vec<Vec<u8>>,
}

/// Where a chain hooks in: hook, priority, policy, kind.
pub(super) type Hooked = (u32, i32, u32, String);

/// The same of a chain as it is wanted.
pub(super) fn hooked(chain: &Chain) -> Option<Hooked> {
    chain.base.as_ref().map(|base| {
        let policy = u32::from(!base.drops);
        let kind = base.kind.name().to_owned();
        (base.hook.number(), base.priority, policy, kind)
    })
}

impl Netfilter {
    /// The table of that name; `None`: it is not there.
    ///
    /// # Errors
    /// When the kernel does not answer, or rules change all the time.
    pub(super) fn present(&self, (family, table): TableName<'_>) -> io::Result<Option<Present>> {
        let mut name = Attributes::default();
        name.text(1, table);
        let mut question = Batch::question();
        question.message(GET_TABLE, 0, family, &name);
        let Some(about) = self.ask(&question, NEW_TABLE)? else {
            return Ok(None);
        };
        // The kernel answers about the chains of all tables of the family.
        let of_table = |message: &Vec<u8>| text(message, 1).as_deref() == Some(table);
        let read = |kind| -> io::Result<Vec<Vec<u8>>> {
            let mut messages = self.dump(kind, family, &name)?;
            messages.retain(of_table);
            Ok(messages)
        };
        let chains = read(GET_CHAIN)?;
        let mut chains: Vec<_> = chains.iter().filter_map(|chain| chain_of(chain)).collect();
        for rule in read(GET_RULE)? {
            let name = text(&rule, 2).unwrap_or_default();
            let mark = Attributes::find(&rule, RULE_USERDATA).unwrap_or_default();
            if let Some(chain) = chains.iter_mut().find(|chain| chain.name == name) {
                chain.marks.push(mark.to_vec());
            }
        }
        let mut sets = read(GET_SET)?;
        sets.retain(|set| number(set, SET_FLAGS).unwrap_or_default() & ANONYMOUS == 0);
        Ok(Some(Present {
            comment: Attributes::find(&about, TABLE_USERDATA).and_then(comment),
            is_dormant: number(&about, TABLE_FLAGS).is_some_and(|flags| flags != 0),
            sets: sets.iter().filter_map(|set| text(set, 2)).collect(),
            chains,
        }))
    }
}

fn chain_of(message: &[u8]) -> Option<PresentChain> {
    Some(PresentChain {
        name: text(message, 3)?,
        base: Attributes::find(message, 4).and_then(|hook| {
            let priority = number(hook, 2)?.cast_signed();
            let policy = number(message, 5)?;
            Some((number(hook, 1)?, priority, policy, text(message, 7)?))
        }),
        marks: Vec::new(),
    })
}

fn text(attributes: &[u8], kind: u16) -> Option<String> {
    let bytes = Attributes::find(attributes, kind)?;
    let text = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    String::from_utf8(text.to_vec()).ok()
}

fn number(attributes: &[u8], kind: u16) -> Option<u32> {
    let bytes = Attributes::find(attributes, kind)?;
    bytes.try_into().map(u32::from_be_bytes).ok()
}
