//! A program of classic BPF that is written from its end: all ways lead forward, so where they lead to is known.

use std::collections::BTreeMap;

/// One instruction: what, how far to when true, how far to when false, with which number.
pub type Instruction = (u16, u8, u8, u32);

/// `BPF_LD | BPF_W | BPF_ABS`: loads a word of the data.
const LOAD: u16 = 0x20;
/// `BPF_ALU | BPF_AND | BPF_K`.
const AND: u16 = 0x54;
/// `BPF_JMP | BPF_JEQ | BPF_K`.
pub const EQUAL: u16 = 0x15;
/// `BPF_JMP | BPF_JGE | BPF_K`.
pub const NOT_BELOW: u16 = 0x35;
/// `BPF_RET | BPF_K`.
const RETURN: u16 = 0x06;

/// `BPF_JMP | BPF_JA`: goes on so many instructions later.
const JUMP: u16 = 0x05;

/// An instruction, by how many there are from it to the end.
#[derive(Clone, Copy)]
pub struct Label(usize);

/// What is written so far.
#[derive(Default)]
pub struct Program {
    reversed: Vec<Instruction>,
    /// The nearest end with each outcome.
    ends: BTreeMap<u32, Label>,
}

impl Program {
    /// The instruction that was written last, which what is written next goes on to.
    pub fn next(&self) -> Label {
        Label(self.reversed.len())
    }

    /// Loads the word at `offset` of the data, and goes on.
    pub fn load(&mut self, offset: u32) {
        self.reversed.push((LOAD, 0, 0, offset));
    }

    /// Keeps `bits` of what is loaded, and goes on.
    pub fn mask(&mut self, bits: u32) {
        self.reversed.push((AND, 0, 0, bits));
    }

    /// Compares what is loaded by `how`, and goes on there.
    pub fn compare(&mut self, how: u16, value: u32, holds: Label, otherwise: Label) {
        // The other may need a step of its own, which is one more instruction between.
        let holds = self.near(holds, 1);
        let otherwise = self.near(otherwise, 0);
        let [holds, otherwise] = [holds, otherwise].map(|place| {
            let between = self.reversed.len() - place.0;
            u8::try_from(between).expect("it is near")
        });
        self.reversed.push((how, holds, otherwise, value));
    }

    /// The end with `outcome`: one that there is within reach, or another.
    pub fn end(&mut self, outcome: u32) -> Label {
        if let Some(place) = self.ends.get(&outcome)
            && self.reaches(*place, MARGIN)
        {
            return *place;
        }
        self.reversed.push((RETURN, 0, 0, outcome));
        let place = self.next();
        self.ends.insert(outcome, place);
        place
    }

    /// The program.
    pub fn finish(mut self) -> Vec<Instruction> {
        self.reversed.reverse();
        self.reversed
    }

    /// Whether a comparison that is written `later` instructions from now can lead to it.
    fn reaches(&self, place: Label, later: usize) -> bool {
        self.reversed.len() + later - place.0 <= usize::from(u8::MAX)
    }

    /// A place that leads to `place`, near enough for a comparison.
    fn near(&mut self, place: Label, later: usize) -> Label {
        if self.reaches(place, later) {
            return place;
        }
        let between = self.reversed.len() - place.0;
        let between = u32::try_from(between).expect("programs are short");
        self.reversed.push((JUMP, 0, 0, between));
        self.next()
    }
}

/// What uses an end is written within so many instructions, or by another step.
const MARGIN: usize = 64;
