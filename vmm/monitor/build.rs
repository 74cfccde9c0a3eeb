//! Compiles the tables of system calls (`src/sandbox/tables`) to filters, as Rust source.
//!
//! A filter is classic BPF (`linux/filter.h`) over `struct seccomp_data` (`linux/seccomp.h`). The kernel
//! checks, translates and tries out each one when it is installed, which costs more than anything else
//! the sandbox does; so calls are found by halving instead of one after the other, the values of an
//! argument are compared without loading it again, and ways to the same outcome share an end that is near.
//! `tests/sandbox.rs` runs the result on every call.

#[path = "build/program.rs"]
mod program;

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

use program::{EQUAL, Instruction, Label, NOT_BELOW, Program};
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

/// For calls of another ABI.
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
/// For calls that are on no line: `SIGSYS`, whose handler (`vmm_sys::forbidden`) logs the call and
/// ends the process.
const TRAP: u32 = libc::SECCOMP_RET_TRAP;

/// The filter's action on a call.
enum FilterAction {
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
    let mut actions: BTreeMap<u32, FilterAction> = BTreeMap::new();
    for rule in rules {
        let number = u32::try_from(rule.number)?;
        let action = actions
            .entry(number)
            .or_insert(FilterAction::If(Vec::new()));
        if let FilterAction::If(arguments) = action
            && !arguments.contains(&rule.arguments)
        {
            arguments.push(rule.arguments);
        }
    }
    if actions.contains_key(&u32::try_from(libc::SYS_clone)?) {
        // A filter cannot see the flags of `clone3`, so it is as if the kernel had none: the C library
        // takes `clone`.
        let no_such_call = FilterAction::Fails(libc::ENOSYS.unsigned_abs());
        actions.insert(u32::try_from(libc::SYS_clone3)?, no_such_call);
    }
    let actions: Vec<(u32, FilterAction)> = actions.into_iter().collect();
    let mut program = Program::default();
    find(&mut program, &actions);
    program.load(NUMBER);
    let ours = program.next();
    let others = program.end(KILL);
    program.compare(EQUAL, X86_64, ours, others);
    program.load(ARCHITECTURE);
    Ok(program.finish())
}

/// Finds the call, whose number is loaded, among `actions`, which are in order.
fn find(program: &mut Program, actions: &[(u32, FilterAction)]) {
    if actions.len() > LEAF {
        let (lower, upper) = actions.split_at(actions.len() / 2);
        find(program, upper);
        let is_upper = program.next();
        find(program, lower);
        let is_lower = program.next();
        let first = upper.first().map_or(0, |(number, _)| *number);
        program.compare(NOT_BELOW, first, is_upper, is_lower);
        return;
    }
    let found: Vec<Label> = actions.iter().map(|(_, it)| decide(program, it)).collect();
    let mut otherwise = program.end(TRAP);
    for ((number, _), found) in actions.iter().zip(found).rev() {
        program.compare(EQUAL, *number, found, otherwise);
        otherwise = program.next();
    }
}

/// Decides on a call by its arguments.
fn decide(program: &mut Program, action: &FilterAction) -> Label {
    let arguments = match action {
        FilterAction::Fails(error) => return program.end(libc::SECCOMP_RET_ERRNO | error),
        FilterAction::If(arguments) if arguments.contains(&Arguments::Any) => {
            return program.end(libc::SECCOMP_RET_ALLOW);
        }
        FilterAction::If(arguments) => arguments,
    };
    let holds = program.end(libc::SECCOMP_RET_ALLOW);
    let mut otherwise = program.end(TRAP);
    for (at, condition) in arguments.iter().enumerate().rev() {
        let (index, mask, value) = parts(*condition);
        program.compare(EQUAL, value, holds, otherwise);
        if let Some(bits) = mask {
            program.mask(bits);
        }
        // An argument that is loaded already, and whole, is not loaded again.
        let before = at.checked_sub(1).and_then(|before| arguments.get(before));
        let is_loaded = before.is_some_and(|before| {
            let (loaded, mask, _) = parts(*before);
            loaded == index && mask.is_none()
        });
        if !is_loaded {
            program.load(FIRST_ARGUMENT + 8 * u32::from(index));
        }
        otherwise = program.next();
    }
    otherwise
}

/// Which argument, which of its bits if not all, and their value.
fn parts(condition: Arguments) -> (u8, Option<u32>, u32) {
    match condition {
        Arguments::Any => (0, Some(0), 0),
        Arguments::Is(index, value) => (index, None, value),
        Arguments::Lacks(index, bits) => (index, Some(bits), 0),
    }
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
