//! What a filter decides, worked out as the kernel does (`linux/filter.h`).

use vmm_sys::seccomp::Instruction;

/// `AUDIT_ARCH_X86_64` of `linux/audit.h`.
pub const X86_64: u32 = 0xc000_003e;
/// `AUDIT_ARCH_I386`.
pub const I386: u32 = 0x4000_0003;

/// `SECCOMP_RET_ALLOW`.
pub const ALLOW: u32 = 0x7fff_0000;
/// `SECCOMP_RET_KILL_PROCESS`.
pub const KILL_PROCESS: u32 = 0x8000_0000;
/// `SECCOMP_RET_TRAP`.
pub const TRAP: u32 = 0x0003_0000;
/// `SECCOMP_RET_ERRNO` with `ENOSYS`.
pub const NO_SUCH_CALL: u32 = 0x0005_0026;

/// Runs `program` on a call.
///
/// # Panics
/// When the program has an instruction that no filter of ours has, or does not end.
pub fn run(program: &[Instruction], architecture: u32, call: i64, arguments: &[u64; 6]) -> u32 {
    let number = u32::try_from(call).expect("a number of a call");
    let word = |offset: u32| match offset {
        0 => number,
        4 => architecture,
        16..64 => {
            let argument = arguments[(offset as usize - 16) / 8];
            let half = argument >> (8 * (offset % 8));
            u32::try_from(half & u64::from(u32::MAX)).expect("32 bits")
        }
        _ => panic!("a load from {offset}"),
    };
    let (mut at, mut accumulator) = (0usize, 0u32);
    loop {
        let Instruction { code, jt, jf, k } = program[at];
        at += 1;
        let branch = |taken: bool| usize::from(if taken { jt } else { jf });
        match code {
            // BPF_LD | BPF_W | BPF_ABS
            0x20 => accumulator = word(k),
            // BPF_ALU | BPF_AND | BPF_K
            0x54 => accumulator &= k,
            // BPF_JMP | BPF_JA
            0x05 => at += k as usize,
            // BPF_JMP | BPF_JEQ | BPF_K
            0x15 => at += branch(accumulator == k),
            // BPF_JMP | BPF_JGE | BPF_K
            0x35 => at += branch(accumulator >= k),
            // BPF_RET | BPF_K
            0x06 => return k,
            _ => panic!("instruction {code:#x}"),
        }
    }
}
