//! The filters of system calls: what they decide, and that a forbidden call ends the process.
//!
//! The program is its own helper: `sandbox be KIND DEED` becomes a process with one thread of a kind,
//! started as all threads of a VMM are, which does one thing.

#![forbid(unsafe_code)]

mod bpf;
#[allow(dead_code, reason = "comparisons alone lead anywhere")]
#[path = "../build/program.rs"]
mod program;

use std::fs::File;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, Output, Stdio};

use libtest_mimic::{Arguments as Options, Failed, Trial};
use nix::sys::signal::Signal;
use program::{EQUAL, Label, NOT_BELOW, Program};
use vmm_monitor::sandbox::tables::{Arguments, COMMON, KINDS, Rule, includes};
use vmm_monitor::sandbox::{enter, filter_of, process_filter};
use vmm_sys::forbidden::install_sigsys_handler;
use vmm_sys::harden::{forbid_dumps, forbid_new_privileges};
use vmm_sys::threads::ThreadKind;
use vmm_sys_util::eventfd::EventFd;

/// What a trial has a thread do.
#[allow(
    clippy::disallowed_methods,
    reason = "a thread that is started past the one way there is"
)]
const DEEDS: [(&str, fn()); 7] = [
    ("work", work),
    ("make an eventfd", || drop(EventFd::new(0))),
    ("open a file", || drop(File::open("/dev/null"))),
    ("make a socket", || drop(UnixDatagram::unbound())),
    ("start a thread", || drop(std::thread::spawn(|| {}))),
    ("abort", || std::process::abort()),
    ("start a process", || {
        drop(Command::new("/bin/true").spawn())
    }),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [be, kind, deed] = arguments.as_slice()
        && be == "be"
    {
        return become_thread(kind, deed);
    }
    let mut trials: Vec<Trial> = ThreadKind::ALL.into_iter().flat_map(trials_of).collect();
    trials.push(Trial::test("filters_decide_as_their_tables_say", decisions));
    trials.push(Trial::test(
        "no_thread_that_meets_a_guest_makes_a_ring",
        rings,
    ));
    trials.push(Trial::test("filters_are_small", sizes));
    trials.push(Trial::test("ends_far_away_are_reached_as_well", far_ends));
    libtest_mimic::run(&Options::from_args(), trials).exit_code()
}

/// Allocates, waits, logs.
fn work() {
    let (sender, receiver) = std::sync::mpsc::channel();
    sender.send(vec![1u8; 8 << 20]).expect("a receiver");
    let bytes = receiver.recv().expect("a sender");
    eprintln!("{} bytes", bytes.len());
}

fn become_thread(kind: &str, deed: &str) -> ExitCode {
    let kind = ThreadKind::ALL
        .into_iter()
        .find(|known| known.name() == kind);
    let deed = DEEDS.into_iter().find(|(name, _)| *name == deed);
    let (Some(kind), Some((_, deed))) = (kind, deed) else {
        return ExitCode::from(64);
    };
    forbid_dumps().expect("no core files");
    install_sigsys_handler().expect("a handler");
    forbid_new_privileges().expect("no new privileges");
    let threads = enter().expect("filters");
    if kind == ThreadKind::Main {
        threads.confine(kind).expect("a filter");
        deed();
    } else {
        let thread = threads.spawn(kind, "thread".to_owned(), deed);
        thread.expect("a thread").join().expect("it ends");
    }
    ExitCode::SUCCESS
}

fn outcome(kind: ThreadKind, deed: &str) -> Result<Output, Failed> {
    let output = Command::new(std::env::current_exe()?)
        .args(["be", kind.name(), deed])
        .stdin(Stdio::null())
        .output()?;
    Ok(output)
}

/// Whether a forbidden call ended the process, and the last thing it said was which, by whom.
fn check_forbidden(kind: ThreadKind, deed: &str) -> Result<(), Failed> {
    let output = outcome(kind, deed)?;
    let status = output.status;
    let said = String::from_utf8_lossy(&output.stderr);
    let call = match deed {
        "open a file" => "system call 257 (0xffffff9c, ",
        "make a socket" => "system call 41 (0x1, 0x80002, 0x0, ",
        _ => "system call ",
    };
    let by = format!("thread=\"{}\"\n", kind.name());
    // The C library blocks all signals where it starts something: the kernel has the last word.
    let is_logged = deed.starts_with("start")
        || said.contains("event=\"forbidden-call\"") && said.contains(call) && said.ends_with(&by);
    if status.signal() != Some(Signal::SIGSYS as i32) || !is_logged {
        return Err(format!("{} to {deed}: {status}, {said}", kind.name()).into());
    }
    Ok(())
}

fn trials_of(kind: ThreadKind) -> Vec<Trial> {
    let mut trials = trials_of_calls(kind);
    // What a panic comes to.
    let aborts = format!("a_{}_thread_can_abort", kind.name());
    trials.push(Trial::test(aborts, move || {
        let status = outcome(kind, "abort")?.status;
        match status.signal() {
            Some(signal) if signal == Signal::SIGABRT as i32 => Ok(()),
            _ => Err(status.to_string().into()),
        }
    }));
    trials
}

fn trials_of_calls(kind: ThreadKind) -> Vec<Trial> {
    let name = kind.name();
    let may = move |deeds: &'static [&'static str]| {
        Trial::test(format!("a_{name}_thread_can_work"), move || {
            for deed in deeds {
                let status = outcome(kind, deed)?.status;
                if !status.success() {
                    return Err(format!("a {name} thread could not {deed}: {status}").into());
                }
            }
            Ok(())
        })
    };
    let may_not = move |deeds: &'static [&'static str]| {
        Trial::test(
            format!("a_forbidden_call_of_a_{name}_thread_ends_the_process"),
            move || {
                deeds
                    .iter()
                    .try_for_each(|deed| check_forbidden(kind, deed))
            },
        )
    };
    match kind {
        ThreadKind::Builder => vec![
            may(&["work", "make an eventfd", "start a thread"]),
            may_not(&["open a file", "make a socket", "start a process"]),
        ],
        // It may start threads that are as narrow as itself.
        ThreadKind::Machine => vec![
            may(&["work", "start a thread"]),
            may_not(&[
                "open a file",
                "make a socket",
                "start a process",
                "make an eventfd",
            ]),
        ],
        // Console ports come with the configuration, and have eventfds.
        ThreadKind::Main => vec![
            may(&["work", "make an eventfd"]),
            may_not(&[
                "open a file",
                "make a socket",
                "start a process",
                "start a thread",
            ]),
        ],
        ThreadKind::Devices | ThreadKind::Vcpu | ThreadKind::FirmwareVcpu => vec![
            may(&["work"]),
            may_not(&[
                "open a file",
                "make a socket",
                "start a process",
                "start a thread",
                "make an eventfd",
            ]),
        ],
    }
}

/// Arguments around those that any rule looks at.
fn candidates() -> Vec<[u64; 6]> {
    let mut all = vec![[0; 6], [u64::MAX; 6]];
    let rules = KINDS.iter().flat_map(|(_, rules)| rules.iter());
    for rule in rules.chain(COMMON) {
        let (Arguments::Is(index, value) | Arguments::Lacks(index, value)) = rule.arguments else {
            continue;
        };
        for value in [
            u64::from(value),
            u64::from(!value),
            u64::from(value) + 1,
            // Only the lower half counts.
            u64::from(value) | 1 << 40,
        ] {
            let mut arguments = [0; 6];
            arguments[usize::from(index)] = value;
            all.push(arguments);
        }
    }
    all
}

fn decisions() -> Result<(), Failed> {
    const CLONE3: i64 = 435;

    let candidates = candidates();
    let allows = |rules: &[&Rule], call: i64, arguments: &[u64; 6]| {
        rules
            .iter()
            .any(|rule| rule.number == call && rule.arguments.allow(arguments))
    };
    let all: Vec<&Rule> = KINDS
        .iter()
        .flat_map(|(_, rules)| rules.iter())
        .chain(COMMON)
        .collect();
    for kind in ThreadKind::ALL {
        let (_, own) = KINDS
            .iter()
            .find(|(name, _)| *name == kind.name())
            .ok_or("a kind without a table")?;
        let (program, rules) = match filter_of(kind) {
            Some(program) => {
                let own = includes(kind.name()).iter().chain(*own);
                (program, own.chain(COMMON).collect::<Vec<&Rule>>())
            }
            None => (process_filter(), all.clone()),
        };
        let starts_threads = rules.iter().any(|rule| rule.name == "SYS_clone");
        for call in 0..600 {
            for arguments in &candidates {
                let decided = bpf::run(program, bpf::X86_64, call, arguments);
                let expected = if allows(&rules, call, arguments) {
                    bpf::ALLOW
                } else if starts_threads && call == CLONE3 {
                    bpf::NO_SUCH_CALL
                } else {
                    bpf::TRAP
                };
                if decided != expected {
                    let name = kind.name();
                    return Err(format!("{name}: {call} {arguments:x?}: {decided:#x}").into());
                }
            }
        }
        // The 32-bit and the x32 calls of the same numbers.
        for call in 0..600 {
            let by_int80 = bpf::run(program, bpf::I386, call, &[0; 6]);
            let by_x32 = bpf::run(program, bpf::X86_64, call | 1 << 30, &[0; 6]);
            // A number that is no call of this ABI, and another ABI.
            if by_x32 != bpf::TRAP || by_int80 != bpf::KILL_PROCESS {
                return Err(format!("{}: {call} of another ABI", kind.name()).into());
            }
        }
    }
    Ok(())
}

/// What a ring does goes past filters, and restrictions hold for the rings that are there: code that a guest
/// brings must have no way to another one.
fn rings() -> Result<(), Failed> {
    const SETUP: i64 = 425;
    const REGISTER: i64 = 427;
    for kind in ThreadKind::ALL {
        let Some(program) = filter_of(kind) else {
            // Before the guest runs.
            continue;
        };
        for call in [SETUP, REGISTER] {
            if bpf::run(program, bpf::X86_64, call, &[0; 6]) != bpf::TRAP {
                return Err(format!("a {} thread may make call {call}", kind.name()).into());
            }
        }
    }
    Ok(())
}

fn sizes() -> Result<(), Failed> {
    println!("process: {} instructions", process_filter().len());
    for kind in ThreadKind::ALL {
        if let Some(program) = filter_of(kind) {
            println!("{}: {} instructions", kind.name(), program.len());
            if program.len() > process_filter().len() {
                return Err(format!("{} is larger than all together", kind.name()).into());
            }
        }
    }
    Ok(())
}

/// None of our filters is so long that a comparison cannot reach where it leads to, which is 255
/// instructions away at most. Each of these is.
fn far_ends() -> Result<(), Failed> {
    const CALLS: u32 = 1_000;
    /// How it compares, where it leads to (next, and the ends that allow and that trap), and what it allows.
    type Shape = (
        &'static str,
        u16,
        fn([Label; 3]) -> [Label; 2],
        fn(u32) -> bool,
    );
    let shapes: [Shape; 3] = [
        (
            "what holds",
            EQUAL,
            |[next, yes, _]| [yes, next],
            |call| (1..=CALLS).contains(&call),
        ),
        (
            "what does not",
            NOT_BELOW,
            |[next, yes, _]| [next, yes],
            |call| call < CALLS,
        ),
        (
            "both",
            EQUAL,
            |[_, yes, no]| [yes, no],
            |call| call == CALLS,
        ),
    ];
    for (name, how, lead, is_allowed) in shapes {
        let mut program = Program::default();
        let [yes, no] = [bpf::ALLOW, bpf::TRAP].map(|outcome| program.end(outcome));
        // Whoever comes by all others is trapped.
        program.compare(NOT_BELOW, 0, no, no);
        for number in 1..=CALLS {
            let [holds, otherwise] = lead([program.next(), yes, no]);
            program.compare(how, number, holds, otherwise);
        }
        program.load(0);
        let program: Vec<_> = program.finish().into_iter().map(instruction).collect();
        for call in 0..2 * CALLS {
            let outcome = bpf::run(&program, bpf::X86_64, i64::from(call), &[0; 6]);
            if (outcome == bpf::ALLOW) != is_allowed(call) {
                return Err(format!("{name} is far: call {call} has outcome {outcome:#x}").into());
            }
        }
    }
    Ok(())
}

fn instruction((code, jt, jf, k): program::Instruction) -> vmm_sys::seccomp::Instruction {
    vmm_sys::seccomp::Instruction { code, jt, jf, k }
}
