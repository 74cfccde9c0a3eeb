//! The two ways in, and the way from there to CPL 3; and a second CPU's way.
//!
//! Everything that runs at CPL 0 lives in this file and in `trap.rs`, as plain integer assembly: a
//! host whose KVM interprets CPL 0 knows no SSE there, and does little over a million instructions
//! a second. For the same reason page tables are data, not code.

use core::arch::global_asm;

/// The port that gets [`BOOT_TIMESTAMP_VALUE`] by the very first instructions of either entry.
pub const BOOT_TIMESTAMP_PORT: u16 = 0x0d02;
/// What is written there: "the first guest instruction has run".
pub const BOOT_TIMESTAMP_VALUE: u8 = 123;

/// `boot_protocol` after a PVH entry; the information is an `hvm_start_info`.
pub const PROTOCOL_PVH: u64 = 1;
/// `boot_protocol` after a 64-bit Linux entry; the information is a `boot_params`.
pub const PROTOCOL_LINUX64: u64 = 2;

/// Where the second CPU begins: below 1 MiB, on a page that nobody uses once page tables are our own.
pub const SECOND_CPU_START: u64 = 0x8000;

/// `XEN_ELFNOTE_PHYS32_ENTRY` of Xen's `include/public/elfnote.h`.
const PVH_NOTE_TYPE: u32 = 18;

// Stacks, descriptor tables and page tables. Low 4 GiB identity-mapped by 2 MiB pages, all of it
// present, writable and open to CPL 3 (flags 0x87, tables 0x07): nothing in here needs protection
// from the payload.
global_asm!(
    r#"
    .section .note.pvh, "a", @note
    .balign 4
    .long 4, 8, {note_type}
    .asciz "Xen"
    .quad pvh_start

    .section .data.boot, "aw", @progbits
    .balign 4096
    .global boot_pml4
boot_pml4:
    .quad boot_pdpt + 0x07
    .fill 511, 8, 0
boot_pdpt:
    .quad boot_pd + 0x0007, boot_pd + 0x1007, boot_pd + 0x2007, boot_pd + 0x3007
    .fill 508, 8, 0
boot_pd:
    .set page, 0
    .rept 2048
    .quad page + 0x87
    .set page, page + 0x200000
    .endr

    .balign 16
boot_gdt:
    .quad 0
    .quad 0x00af9b000000ffff    # 0x08 code, CPL 0
    .quad 0x00cf93000000ffff    # 0x10 data, CPL 0
    .quad 0x00cff3000000ffff    # 0x18 data, CPL 3
    .quad 0x00affb000000ffff    # 0x20 code, CPL 3
boot_tss_descriptor:
    .quad 0x0000890000002068    # 0x28 TSS; its address is filled in
    .quad 0
boot_gdt_end:
    .balign 16
boot_tss:
    .long 0
    .quad kernel_stack_top, 0, 0        # rsp0..rsp2
    .quad 0
    .quad fault_stack_top               # ist1
    .fill 6, 8, 0                       # ist2..ist7
    .quad 0
    .word 0, 0x68                       # where the I/O permission map begins:
    .fill 8192, 1, 0                    # every port is open to CPL 3
    .byte 0xff
    .balign 8
boot_gdt_pointer:
    .word boot_gdt_end - boot_gdt - 1
    .quad boot_gdt
boot_idt_pointer:
    .word 256 * 16 - 1
    .quad trap_idt
    .balign 8
    .global boot_protocol
boot_protocol: .quad 0
    .global boot_information
boot_information: .quad 0
    .global boot_x2apic
boot_x2apic: .quad 0

    .section .bss.boot, "aw", @nobits
    .balign 4096
    .global trap_idt
trap_idt: .skip 4096
    .skip 8192
kernel_stack_top:
    .skip 4096
fault_stack_top:
    .skip 65536
user_stack_top:
    "#,
    note_type = const PVH_NOTE_TYPE,
);

// PVH, 32-bit protected mode without paging, ebx = hvm_start_info (Xen, docs/misc/pvh.pandoc).
global_asm!(
    r#"
    .section .text.boot, "ax", @progbits
    .code32
    .global pvh_start
pvh_start:
    mov dx, {port}
    mov al, {value}
    out dx, al
    cli
    cld
    mov esp, offset kernel_stack_top
    mov dword ptr [boot_information], ebx
    mov dword ptr [boot_protocol], {pvh}
    mov eax, cr4
    or eax, 0x620               # PAE, OSFXSR, OSXMMEXCPT
    mov cr4, eax
    mov eax, offset boot_pml4
    mov cr3, eax
    mov ecx, 0xc0000080         # EFER.LME
    rdmsr
    or eax, 0x100
    wrmsr
    mov eax, cr0
    and eax, 0xfffffff3         # EM and TS off: SSE is the payload's
    or eax, 0x80000023          # PG, NE, MP, PE
    mov cr0, eax
    lgdt [boot_gdt_pointer]
    .byte 0xea                  # ljmp 0x08:long_mode
    .long long_mode
    .word 0x08
    "#,
    port = const BOOT_TIMESTAMP_PORT,
    value = const BOOT_TIMESTAMP_VALUE,
    pvh = const PROTOCOL_PVH,
);

// The 64-bit Linux boot protocol, rsi = boot_params (Linux, Documentation/arch/x86/boot.rst), and
// what both entries share: segments, descriptor tables, local APIC mode, and the drop to CPL 3.
global_asm!(
    r#"
    .section .text.boot, "ax", @progbits
    .code64
    .global linux64_start
linux64_start:
    mov dx, {port}
    mov al, {value}
    out dx, al
    cli
    cld
    mov rsp, offset kernel_stack_top
    mov qword ptr [boot_information], rsi
    mov qword ptr [boot_protocol], {linux64}
    mov rax, cr4
    or rax, 0x620
    mov cr4, rax
    mov rax, offset boot_pml4
    mov cr3, rax
    mov rax, cr0
    and rax, 0xfffffffffffffff3
    or rax, 0x22
    mov cr0, rax
    lgdt [boot_gdt_pointer]
    mov rax, offset long_mode
    push 0x08
    push rax
    retfq

long_mode:
    mov eax, 0x10
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor eax, eax
    mov fs, eax
    mov gs, eax
    mov rsp, offset kernel_stack_top
    lidt [boot_idt_pointer]
    mov rax, offset boot_tss
    mov word ptr [boot_tss_descriptor + 2], ax
    shr rax, 16
    mov byte ptr [boot_tss_descriptor + 4], al
    mov byte ptr [boot_tss_descriptor + 7], ah
    mov eax, 0x28
    ltr ax

    mov eax, 1
    xor ecx, ecx
    cpuid
    test ecx, 0x200000          # x2APIC
    jz enter_payload
    mov ecx, 0x1b               # IA32_APIC_BASE: EN, EXTD
    rdmsr
    or eax, 0xc00
    wrmsr
    mov qword ptr [boot_x2apic], 1

enter_payload:
    mov rdi, qword ptr [boot_protocol]
    mov rsi, qword ptr [boot_information]
    mov rdx, qword ptr [boot_x2apic]
    xor ebp, ebp
    mov rax, offset user_stack_top
    sub rax, 8
    push 0x1b
    push rax
    push 0x3002                 # IOPL 3, interrupts off
    push 0x23
    mov rax, offset payload_main
    push rax
    iretq
    "#,
    port = const BOOT_TIMESTAMP_PORT,
    value = const BOOT_TIMESTAMP_VALUE,
    linux64 = const PROTOCOL_LINUX64,
);

// The second CPU. What a CPU has of its own: descriptors, as a task is busy once it is loaded, and stacks.
global_asm!(
    r#"
    .section .data.boot, "aw", @progbits
    .balign 16
second_cpu_gdt:
    .quad 0
    .quad 0x00af9b000000ffff    # selectors as above
    .quad 0x00cf93000000ffff
    .quad 0x00cff3000000ffff
    .quad 0x00affb000000ffff
second_cpu_tss_descriptor:
    .quad 0x0000890000002068
    .quad 0
    .quad 0x00cf9b000000ffff    # 0x38 code of 32 bits
second_cpu_gdt_end:
    .balign 16
second_cpu_tss:
    .long 0
    .quad second_cpu_kernel_stack_top, 0, 0
    .quad 0
    .quad second_cpu_fault_stack_top
    .fill 6, 8, 0
    .quad 0
    .word 0, 0x68
    .fill 8192, 1, 0
    .byte 0xff
    .balign 8
second_cpu_gdt_pointer:
    .word second_cpu_gdt_end - second_cpu_gdt - 1
    .quad second_cpu_gdt

    .section .bss.boot, "aw", @nobits
    .balign 16
    .skip 4096
second_cpu_kernel_stack_top:
    .skip 4096
second_cpu_fault_stack_top:
    .skip 16384
second_cpu_user_stack_top:
    "#
);

// From real mode, where a SIPI has it begin, through protected mode. The first part is copied to
// `SECOND_CPU_START` and names nothing but what lies within it; some of it in bytes, as assemblers differ
// in what they make of operands of another size than the mode's.
global_asm!(
    r#"
    .section .text.boot, "ax", @progbits
    .code16
    .global second_cpu_start
second_cpu_start:
    cli
    xor ax, ax
    mov ds, ax
    .byte 0x66, 0x0f, 0x01, 0x16        # lgdt with a base of 32 bits
    .word {start} + 2f - second_cpu_start
    mov eax, cr0
    or al, 1
    mov cr0, eax
    .byte 0x66, 0xea                    # ljmp 0x38:second_cpu_protected
    .long second_cpu_protected
    .word 0x38
2:  .word second_cpu_gdt_end - second_cpu_gdt - 1
    .long second_cpu_gdt
    .global second_cpu_start_end
second_cpu_start_end:

    .code32
second_cpu_protected:
    mov eax, 0x10
    mov ds, eax
    mov ss, eax
    mov esp, offset second_cpu_kernel_stack_top
    mov eax, cr4
    or eax, 0x620
    mov cr4, eax
    mov eax, offset boot_pml4
    mov cr3, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x100
    wrmsr
    mov eax, cr0
    and eax, 0x9ffffff3         # caches on, too: an INIT leaves them off
    or eax, 0x80000023
    mov cr0, eax
    .byte 0xea                  # ljmp 0x08:second_cpu_long
    .long second_cpu_long
    .word 0x08

    .code64
second_cpu_long:
    mov eax, 0x10
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor eax, eax
    mov fs, eax
    mov gs, eax
    mov rsp, offset second_cpu_kernel_stack_top
    lgdt [second_cpu_gdt_pointer]
    lidt [boot_idt_pointer]
    mov rax, offset second_cpu_tss
    mov word ptr [second_cpu_tss_descriptor + 2], ax
    shr rax, 16
    mov byte ptr [second_cpu_tss_descriptor + 4], al
    mov byte ptr [second_cpu_tss_descriptor + 5], 0x89  # no longer busy
    mov byte ptr [second_cpu_tss_descriptor + 7], ah
    mov eax, 0x28
    ltr ax
    xor ebp, ebp
    mov rax, offset second_cpu_user_stack_top
    sub rax, 8
    push 0x1b
    push rax
    push 0x3002
    push 0x23
    mov rax, offset second_cpu_main
    push rax
    iretq
    "#,
    start = const SECOND_CPU_START,
);

unsafe extern "C" {
    static second_cpu_start: u8;
    static second_cpu_start_end: u8;
}

/// What has to be at [`SECOND_CPU_START`] for the second CPU to continue in `second_cpu_main`.
pub fn second_cpu_code() -> &'static [u8] {
    let start = &raw const second_cpu_start;
    let bytes = (&raw const second_cpu_start_end).addr() - start.addr();
    // SAFETY: instructions of this program, which nobody writes to.
    unsafe { core::slice::from_raw_parts(start, bytes) }
}
