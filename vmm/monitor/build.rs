//! Compiles the tables of system calls (`src/sandbox/tables`) to filters, as Rust source.
//!
//! A filter is classic BPF (`linux/filter.h`) over `struct seccomp_data` (`linux/seccomp.h`). The kernel
//! checks, translates and tries out each one when it is installed, which costs more than anything else
//! the sandbox does; so calls are found by halving instead of one after the other, and the values of an
//! argument are compared without loading it again. `tests/sandbox.rs` runs the result on every call.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;

#[allow(
    dead_code,
    unused_imports,
    reason = "names and reasons are for people and for `cargo xtask syscalls`"
)]
#[path = "src/sandbox/tables/mod.rs"]
mod tables;

use tables::{Arguments, BUILDER, COMMON, KINDS, Rule};

/// The most instructions that the kernel takes (`BPF_MAXINSNS`).
const MOST_INSTRUCTIONS: usize = 4096;

/// So few calls are compared one after the other.
const LEAF: usize = 3;

/// `AUDIT_ARCH_X86_64` of `linux/audit.h`.
const X86_64: u32 = 0xc000_003e;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

/// One instruction: what, where to when true, where to when false, with which number.
type Instruction = (u16, u8, u8, u32);

/// `BPF_LD | BPF_W | BPF_ABS`: loads a word of the data.
const LOAD: u16 = 0x20;
/// `BPF_ALU | BPF_AND | BPF_K`.
const AND: u16 = 0x54;
/// `BPF_JMP | BPF_JA`: goes on so many instructions later.
const JUMP: u16 = 0x05;
/// `BPF_JMP | BPF_JEQ | BPF_K`.
const EQUAL: u16 = 0x15;
/// `BPF_JMP | BPF_JGE | BPF_K`.
const NOT_BELOW: u16 = 0x35;
/// `BPF_RET | BPF_K`.
const RETURN: u16 = 0x06;

const ALLOW: Instruction = (RETURN, 0, 0, libc::SECCOMP_RET_ALLOW);
/// For calls of another ABI.
const KILL: Instruction = (RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS);
/// For calls that are on no line: `SIGSYS`, whose handler (`vmm_sys::forbidden`) tells the call and
/// ends the process.
const TRAP: Instruction = (RETURN, 0, 0, libc::SECCOMP_RET_TRAP);

/// What becomes of a call.
enum Verdict {
    /// It is made if one of these holds.
    If(Vec<Arguments>),
    /// It is answered with this error.
    Fails(u32),
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/sandbox/tables");
    // 8,600 relocations in 3 KiB in place of 200: fewer pages to read at each start, and to keep.
    println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    let mut source = String::new();
    // The last kind first: values of an argument are compared in order, and a vCPU makes the most calls.
    let union = KINDS.iter().rev().flat_map(|(_, rules)| rules.iter());
    declare(&mut source, "PROCESS", &compile(union.chain(COMMON))?)?;
    for (kind, rules) in KINDS.iter().filter(|(kind, _)| *kind != BUILDER) {
        let program = compile(tables::includes(kind).iter().chain(*rules).chain(COMMON))?;
        declare(&mut source, &kind.to_uppercase(), &program)?;
    }
    let directory = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(directory.join("filters.rs"), source)?;
    Ok(())
}

/// A program that allows what `rules` say and else ends the process.
fn compile<'a>(rules: impl Iterator<Item = &'a Rule>) -> Result<Vec<Instruction>, Box<dyn Error>> {
    let mut verdicts: BTreeMap<u32, Verdict> = BTreeMap::new();
    for rule in rules {
        let number = u32::try_from(rule.number)?;
        let verdict = verdicts.entry(number).or_insert(Verdict::If(Vec::new()));
        if let Verdict::If(arguments) = verdict
            && !arguments.contains(&rule.arguments)
        {
            arguments.push(rule.arguments);
        }
    }
    if verdicts.contains_key(&u32::try_from(libc::SYS_clone)?) {
        // A filter can not see the flags of `clone3`, so it is as if the kernel had none: the C library
        // takes `clone`.
        let no_such_call = Verdict::Fails(libc::ENOSYS.unsigned_abs());
        verdicts.insert(u32::try_from(libc::SYS_clone3)?, no_such_call);
    }
    let verdicts: Vec<(u32, Verdict)> = verdicts.into_iter().collect();
    let mut program = vec![
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, X86_64),
        KILL,
        (LOAD, 0, 0, NUMBER),
    ];
    program.extend(find(&verdicts)?);
    Ok(program)
}

/// Finds the call, whose number is loaded, among `verdicts`, which are in order.
fn find(verdicts: &[(u32, Verdict)]) -> Result<Vec<Instruction>, Box<dyn Error>> {
    let mut program = Vec::new();
    if verdicts.len() <= LEAF {
        for (number, verdict) in verdicts {
            let body = decide(verdict)?;
            program.push((EQUAL, 0, u8::try_from(body.len())?, *number));
            program.extend(body);
        }
        program.push(TRAP);
        return Ok(program);
    }
    let (lower, upper) = verdicts.split_at(verdicts.len() / 2);
    let lower_half = find(lower)?;
    let first = upper.first().map_or(0, |(number, _)| *number);
    program.push((NOT_BELOW, 0, 1, first));
    program.push((JUMP, 0, 0, u32::try_from(lower_half.len())?));
    program.extend(lower_half);
    program.extend(find(upper)?);
    Ok(program)
}

/// Decides on a call by its arguments.
fn decide(verdict: &Verdict) -> Result<Vec<Instruction>, Box<dyn Error>> {
    let arguments = match verdict {
        Verdict::Fails(error) => {
            return Ok(vec![(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | error)]);
        }
        Verdict::If(arguments) if arguments.contains(&Arguments::Any) => return Ok(vec![ALLOW]),
        Verdict::If(arguments) => arguments,
    };
    // First without the ways to the end, which is not known yet.
    let mut program: Vec<Instruction> = Vec::new();
    let mut loaded = None;
    for condition in arguments {
        let (index, mask, value) = match condition {
            Arguments::Any => continue,
            Arguments::Is(index, number) => (*index, None, *number),
            Arguments::Lacks(index, bits) => (*index, Some(*bits), 0),
        };
        if loaded != Some(index) {
            program.push((LOAD, 0, 0, FIRST_ARGUMENT + 8 * u32::from(index)));
            loaded = Some(index);
        }
        if let Some(bits) = mask {
            program.push((AND, 0, 0, bits));
            loaded = None;
        }
        program.push((EQUAL, 0, 0, value));
    }
    program.push(TRAP);
    let end = program.len();
    for (at, instruction) in program.iter_mut().enumerate() {
        if instruction.0 == EQUAL {
            instruction.1 = u8::try_from(end - at - 1)?;
        }
    }
    program.push(ALLOW);
    Ok(program)
}

fn declare(source: &mut String, name: &str, program: &[Instruction]) -> Result<(), Box<dyn Error>> {
    let length = program.len();
    if length > MOST_INSTRUCTIONS {
        return Err(format!("{name} has {length} instructions").into());
    }
    writeln!(source, "pub static {name}: [Instruction; {length}] = [")?;
    for (code, jt, jf, k) in program {
        writeln!(
            source,
            "    Instruction {{ code: {code}, jt: {jt}, jf: {jf}, k: {k} }},"
        )?;
    }
    writeln!(source, "];")?;
    Ok(())
}
