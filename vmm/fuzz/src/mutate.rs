//! Programs made of others by chance, and chance itself: the same seed gives the same programs.

/// A stream of numbers (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `count`; 0 when that is 0.
    pub fn below(&mut self, count: usize) -> usize {
        let count = u64::try_from(count.max(1)).unwrap_or(1);
        usize::try_from(self.number() % count).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        let [byte, ..] = self.number().to_le_bytes();
        byte
    }
}

/// Longest program.
const MAX_BYTES: usize = 4096;

/// Values at which arithmetic breaks.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 32,
    1 << 63,
    u64::MAX,
];

/// A new program: one of `corpus` with a few changes, or none of them at all.
pub fn program(corpus: &[Vec<u8>], chance: &mut Chance) -> Vec<u8> {
    let mut program = match corpus.get(chance.below(corpus.len() + corpus.len() / 4 + 1)) {
        Some(known) => known.clone(),
        None => (0..chance.below(512)).map(|_| chance.byte()).collect(),
    };
    for _ in 0..=chance.below(8) {
        change(&mut program, corpus, chance);
    }
    program.truncate(MAX_BYTES);
    program
}

fn change(program: &mut Vec<u8>, corpus: &[Vec<u8>], chance: &mut Chance) {
    let at = chance.below(program.len());
    let length = chance.below(16) + 1;
    let end = (at + length).min(program.len());
    match chance.below(8) {
        0 => set(program, at, &[chance.byte()]),
        1 => {
            let flipped = program.get(at).copied().unwrap_or(0) ^ 1 << chance.below(8);
            set(program, at, &[flipped]);
        }
        2 => {
            let edge = EDGES[chance.below(EDGES.len())].to_le_bytes();
            let width = 1 << chance.below(4);
            set(program, at, &edge[..width]);
        }
        3 => {
            let fresh: Vec<u8> = (0..length).map(|_| chance.byte()).collect();
            program.splice(at..at, fresh);
        }
        4 => {
            program.drain(at..end);
        }
        5 => {
            // The same again.
            let copy = program[at..end].to_vec();
            program.splice(at..at, copy);
        }
        6 => {
            let other = &corpus[chance.below(corpus.len())..];
            let Some(other) = other.first() else { return };
            let from = chance.below(other.len());
            let part = other[from..(from + length * 4).min(other.len())].to_vec();
            program.splice(at..at, part);
        }
        _ => program.extend((0..length).map(|_| chance.byte())),
    }
}

/// Overwrites what is at `at`, as far as there is something.
fn set(program: &mut [u8], at: usize, values: &[u8]) {
    for (place, value) in program.iter_mut().skip(at).zip(values) {
        *place = *value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_programs_of_bounded_length() {
        let corpus = vec![vec![1, 2, 3], vec![9; 5000], Vec::new()];
        let programs = |seed| {
            let mut chance = Chance::new(seed);
            let programs = (0..500).map(|_| program(&corpus, &mut chance));
            programs.collect::<Vec<_>>()
        };
        assert_eq!(programs(7), programs(7));
        assert_ne!(programs(7), programs(8));
        assert!(programs(9).iter().all(|program| program.len() <= MAX_BYTES));
        let mut chance = Chance::new(1);
        assert!((0..100).any(|_| !program(&[], &mut chance).is_empty()));
    }
}
