//! The `Host` trait and its Linux side: images, disks, network, cgroups and the VMM client.

#![forbid(unsafe_code)]
