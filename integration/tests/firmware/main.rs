//! Stock firmware boots stock disks, in a node in a box: SeaBIOS or OVMF, GRUB, Debian's kernel.

#![forbid(unsafe_code)]

mod bios;
mod dmesg;
mod machine;
mod uefi;
