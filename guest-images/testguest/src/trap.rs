//! Interrupts and exceptions: short handlers at CPL 0, everything else at CPL 3.
//!
//! - A device interrupt counts itself, acknowledges the local APIC and returns.
//! - `hlt`, `rdmsr` and `wrmsr` of the payload raise #GP; the handler executes them in its place.
//!   That needs neither `int n` nor `syscall`, which not every host's KVM interprets. So do `cli`
//!   and `sti` where the host does not honour IOPL 3.
//! - Any other exception continues at CPL 3 in `exception_report` (`exception.rs`) on a stack of its own.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

/// The first of [`IRQ_VECTORS`] vectors that devices and the timer may use.
pub const FIRST_IRQ_VECTOR: u8 = 0x30;
/// How many vectors count their interrupts.
pub const IRQ_VECTORS: u8 = 16;
/// Where the local APIC's spurious interrupts go.
pub const SPURIOUS_VECTOR: u8 = 0xff;

const EXCEPTIONS: u8 = 32;
const DOUBLE_FAULT: u8 = 8;
/// Bytes between two entry stubs of one kind.
const STUB_BYTES: usize = 16;
const KERNEL_CODE: u64 = 0x08;
/// Present, DPL 0, 64-bit interrupt gate (Intel SDM 3A, 6.14.1).
const INTERRUPT_GATE: u64 = 0x8e00 << 32;

#[unsafe(no_mangle)]
static TRAP_IRQ_COUNTS: [AtomicU32; IRQ_VECTORS as usize] =
    [const { AtomicU32::new(0) }; IRQ_VECTORS as usize];
/// Address of the xAPIC's EOI register, 0 in x2APIC mode.
#[unsafe(no_mangle)]
static TRAP_XAPIC_EOI: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    static trap_idt: [AtomicU64; 512];
    fn trap_exception_stubs();
    fn trap_irq_stubs();
    fn trap_spurious();
}

// Exceptions. Vectors with an error code: 8, 10 to 14, 17, 21, 29, 30 (bit mask 0x60227d00).
global_asm!(
    r#"
    .section .text.boot, "ax", @progbits
    .code64
    .balign {stub_bytes}
    .global trap_exception_stubs
trap_exception_stubs:
    .set vector, 0
    .rept {exceptions}
    .balign {stub_bytes}
    .if vector == 13
    jmp trap_gp
    .else
    .if ((0x60227d00 >> vector) & 1) == 0
    push 0
    .endif
    push vector
    jmp trap_exception
    .endif
    .set vector, vector + 1
    .endr

trap_gp:                                # error, rip, cs, rflags, rsp, ss
    push rax
    mov rax, qword ptr [rsp + 16]
    test byte ptr [rsp + 24], 3
    jz 2f
    cmp byte ptr [rax], 0xf4            # hlt
    je 3f
    cmp byte ptr [rax], 0xfa            # cli
    je 6f
    cmp byte ptr [rax], 0xfb            # sti
    je 7f
    cmp word ptr [rax], 0x300f          # wrmsr
    je 4f
    cmp word ptr [rax], 0x320f          # rdmsr
    je 5f
2:  pop rax
    push 13
    jmp trap_exception
3:  inc qword ptr [rsp + 16]
    pop rax
    add rsp, 8
    sti                                 # no interrupt is lost: sti holds them off until hlt
    hlt
    cli
    iretq
4:  add qword ptr [rsp + 16], 2
    pop rax
    add rsp, 8
    wrmsr
    iretq
5:  add qword ptr [rsp + 16], 2
    pop rax
    add rsp, 8
    rdmsr
    iretq
6:  inc qword ptr [rsp + 16]
    and dword ptr [rsp + 32], 0xfffffdff
    pop rax
    add rsp, 8
    iretq
7:  inc qword ptr [rsp + 16]
    or dword ptr [rsp + 32], 0x200
    pop rax
    add rsp, 8
    iretq

trap_exception:                         # vector, error, rip, cs, rflags, rsp, ss
    cld
    pop rdi
    pop rsi
    pop rdx
    mov rcx, cr2
    pop r8
    pop r9
    pop r9
    mov rax, offset emergency_stack_top
    sub rax, 8
    push 0x1b
    push rax
    push 0x3002
    push 0x23
    mov rax, offset exception_report
    push rax
    iretq

    .section .bss.boot, "aw", @nobits
    .balign 16
    .skip 16384
emergency_stack_top:
    "#,
    stub_bytes = const STUB_BYTES,
    exceptions = const EXCEPTIONS,
);

global_asm!(
    r#"
    .section .text.boot, "ax", @progbits
    .code64
    .balign {stub_bytes}
    .global trap_irq_stubs
trap_irq_stubs:
    .set irq, 0
    .rept {irqs}
    .balign {stub_bytes}
    inc dword ptr [TRAP_IRQ_COUNTS + irq * 4]
    jmp trap_eoi
    .set irq, irq + 1
    .endr

trap_eoi:
    push rax
    mov rax, qword ptr [TRAP_XAPIC_EOI]
    test rax, rax
    jz 2f
    mov dword ptr [rax], 0
    pop rax
    iretq
2:  push rcx
    push rdx
    xor eax, eax
    xor edx, edx
    mov ecx, 0x80b                      # IA32_X2APIC_EOI
    wrmsr
    pop rdx
    pop rcx
    pop rax
    iretq

    .global trap_spurious
trap_spurious:
    iretq
    "#,
    stub_bytes = const STUB_BYTES,
    irqs = const IRQ_VECTORS,
);

/// Fills the IDT. Until then every exception is a triple fault, so this comes first.
pub fn install() {
    let exceptions = trap_exception_stubs as *const () as usize;
    for vector in 0..EXCEPTIONS {
        let ist = u64::from(vector == DOUBLE_FAULT);
        set_gate(vector, exceptions + usize::from(vector) * STUB_BYTES, ist);
    }
    let irqs = trap_irq_stubs as *const () as usize;
    for irq in 0..IRQ_VECTORS {
        set_gate(
            FIRST_IRQ_VECTOR + irq,
            irqs + usize::from(irq) * STUB_BYTES,
            0,
        );
    }
    set_gate(SPURIOUS_VECTOR, trap_spurious as *const () as usize, 0);
}

/// Empties the IDT, so that the next exception shuts the CPU down (a triple fault).
pub fn remove_all_gates() {
    // SAFETY: the table is a static of `entry.rs`, only ever accessed through these atomics.
    for word in unsafe { &trap_idt } {
        word.store(0, Ordering::SeqCst);
    }
}

fn set_gate(vector: u8, handler: usize, ist: u64) {
    let offset = handler as u64;
    let low = (offset & 0xffff)
        | KERNEL_CODE << 16
        | ist << 32
        | INTERRUPT_GATE
        | (offset >> 16 & 0xffff) << 48;
    // SAFETY: as in `remove_all_gates`.
    let idt = unsafe { &trap_idt };
    let index = usize::from(vector) * 2;
    idt[index + 1].store(offset >> 32, Ordering::SeqCst);
    idt[index].store(low, Ordering::SeqCst);
}

/// Tells the interrupt handlers where to acknowledge: the xAPIC's EOI register.
pub fn set_xapic_eoi(address: u64) {
    TRAP_XAPIC_EOI.store(address, Ordering::SeqCst);
}

/// How often `vector` has been delivered since the start.
pub fn irq_count(vector: u8) -> u32 {
    TRAP_IRQ_COUNTS[usize::from(vector - FIRST_IRQ_VECTOR)].load(Ordering::SeqCst)
}

/// Lets interrupts in, by IOPL 3 or by `trap_gp`.
pub fn enable_interrupts() {
    // SAFETY: the IDT is in place, and handlers touch nothing but their counters.
    unsafe { asm!("sti", options(nostack)) };
}

/// Keeps interrupts out.
pub fn disable_interrupts() {
    // SAFETY: only delays interrupts.
    unsafe { asm!("cli", options(nostack)) };
}

/// Sleeps until an interrupt has been handled. Called with interrupts disabled, returns with them
/// disabled; one that is already pending ends the sleep at once.
pub fn wait_for_interrupt() {
    compiler_fence(Ordering::SeqCst);
    // SAFETY: raises #GP; `trap_gp` halts with interrupts enabled and returns behind the `hlt`.
    unsafe { asm!("hlt") };
    compiler_fence(Ordering::SeqCst);
}

/// Reads a model-specific register.
pub fn read_msr(msr: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: executed by `trap_gp`; reading the registers this guest uses has no side effect.
    unsafe { asm!("rdmsr", in("ecx") msr, out("eax") low, out("edx") high) };
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a local APIC register in x2APIC mode.
pub fn write_x2apic(msr: u32, value: u64) {
    let high = value >> 32;
    // SAFETY: executed by `trap_gp`; the local APIC has no influence on memory but by the second CPU, which
    // begins where `second_cpu.rs` has put what it does.
    unsafe { asm!("wrmsr", in("ecx") msr, in("rax") value, in("rdx") high) };
}
