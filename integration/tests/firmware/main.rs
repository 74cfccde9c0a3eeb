//! Stock firmware boots stock disks, in a node in a box: SeaBIOS, GRUB, Debian's kernel.

#![forbid(unsafe_code)]

mod bios;
mod machine;
