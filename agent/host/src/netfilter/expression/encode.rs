//! Expressions as the kernel reads them.

use super::{Expression, FIRST, SECOND, WORDS};
use crate::netfilter::attributes::Attributes;
use crate::netfilter::kinds::Verdict;

impl Expression {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Meta { .. } => "meta",
            Self::Payload { .. } => "payload",
            Self::Compare { .. } => "cmp",
            Self::Mask { .. } => "bitwise",
            Self::Extension { .. } => "exthdr",
            Self::ConnectionTracking { .. } => "ct",
            Self::Lookup { .. } => "lookup",
            Self::Learn { .. } => "dynset",
            Self::Number { .. } => "numgen",
            Self::Load { .. } | Self::Decide(_) => "immediate",
            Self::Translate { .. } => "nat",
            Self::Masquerade => "masq",
            Self::Count => "counter",
        }
    }

    /// Numbers of attributes: `linux/netfilter/nf_tables.h`.
    pub(super) fn encode(&self, data: &mut Attributes) {
        match self {
            Self::Meta { key, into } => {
                data.number(1, *into);
                data.number(2, *key);
            }
            Self::Payload {
                base,
                offset,
                length,
                into,
            } => {
                data.number(1, *into);
                data.number(2, *base);
                data.number(3, *offset);
                data.number(4, *length);
            }
            Self::Compare {
                register,
                operator,
                value,
            } => {
                data.number(1, *register);
                data.number(2, *operator);
                data.nested(3, |inner| inner.bytes(1, value));
            }
            Self::Mask { mask } => encode_mask(mask, data),
            Self::Extension { kind, into } => encode_extension(*kind, *into, data),
            Self::ConnectionTracking { key } => {
                data.number(1, FIRST);
                data.number(2, *key);
            }
            Self::Lookup { set, inverted } => {
                data.text(1, set);
                data.number(2, WORDS);
                data.number(5, u32::from(*inverted));
            }
            Self::Learn { set } => {
                const ADD: u32 = 0;
                data.text(1, set);
                data.number(3, ADD);
                data.number(4, WORDS);
            }
            Self::Number { modulus } => {
                data.number(1, FIRST);
                data.number(2, *modulus);
                data.number(3, 0);
                data.number(4, 0);
            }
            Self::Load { register, value } => {
                data.number(1, *register);
                data.nested(2, |inner| inner.bytes(1, value));
            }
            Self::Translate { family, with_port } => {
                data.number(1, 1);
                data.number(2, *family);
                data.number(3, FIRST);
                if *with_port {
                    data.number(5, SECOND);
                }
            }
            Self::Masquerade | Self::Count => {}
            Self::Decide(verdict) => {
                data.number(1, 0);
                data.nested(2, |inner| {
                    inner.nested(2, |decision| encode_verdict(verdict, decision));
                });
            }
        }
    }
}

fn encode_mask(mask: &[u8], data: &mut Attributes) {
    data.number(1, FIRST);
    data.number(2, FIRST);
    data.number(3, u32::try_from(mask.len()).unwrap_or_default());
    data.nested(4, |inner| inner.bytes(1, mask));
    data.nested(5, |inner| inner.bytes(1, &vec![0; mask.len()]));
}

fn encode_extension(kind: u8, into: u32, data: &mut Attributes) {
    const PRESENT: u32 = 1;
    data.number(1, into);
    data.bytes(2, &[kind]);
    data.number(3, 0);
    data.number(4, 1);
    data.number(5, PRESENT);
}

fn encode_verdict(verdict: &Verdict, data: &mut Attributes) {
    const JUMP: i32 = -3;
    match verdict {
        Verdict::Drop => data.number(1, 0),
        Verdict::Accept => data.number(1, 1),
        Verdict::Jump(chain) => {
            data.bytes(1, &JUMP.to_be_bytes());
            data.text(2, chain);
        }
    }
}
