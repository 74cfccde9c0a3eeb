# /init of a guest whose start is measured: it says so (INIT_LINE of integration/src/vmm_bench.rs) and waits for
# its hypervisor's end. It is one page; a program with a C library is two megabytes, which every start copies.
    .globl _start
_start:
    mov $1, %eax            # write
    mov $1, %edi
    lea line(%rip), %rsi
    mov $length, %edx
    syscall
wait:
    mov $34, %eax           # pause
    syscall
    jmp wait

    .section .rodata
line:
    .ascii "BENCH init\n"
    .set length, . - line

    .section .note.GNU-stack, "", @progbits
