//! An attack that ends the machine: instructions from where no memory is. KVM cannot go on, and the
//! host says so.

use core::arch::asm;

use crate::pci::Ecam;
use crate::serial::console_line;

/// Jumps into configuration space, which answers with what makes no sense as instructions.
pub fn run(ecam: &Ecam) -> ! {
    let mut place = 0;
    ecam.for_each(|function| place = function.configuration().address());
    console_line!("TESTGUEST attack execute instructions-in-registers: ends");
    // SAFETY: never comes back; ends this machine, which is what is asked for.
    unsafe { asm!("jmp {}", in(reg) place, options(noreturn)) }
}
