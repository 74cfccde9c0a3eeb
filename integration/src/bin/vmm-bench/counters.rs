//! What the kernel counts of a hypervisor: exits of its guest, memory of its process.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use integration::process;
use integration::vmm_bench::names;

const DEBUGFS: &str = "/sys/kernel/debug";

/// Makes KVM's counters visible.
pub fn mount() -> anyhow::Result<()> {
    if Path::new(DEBUGFS).join("kvm").is_dir() {
        return Ok(());
    }
    let mut command = std::process::Command::new("mount");
    process::output(command.args(["-t", "debugfs", "debugfs", DEBUGFS])).map(drop)
}

/// Adds the exits of the VM that process `pid` has.
pub fn add_exits(pid: u32, values: &mut BTreeMap<String, f64>) -> anyhow::Result<()> {
    let prefix = format!("{pid}-");
    for entry in fs::read_dir(Path::new(DEBUGFS).join("kvm"))? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(&prefix) {
            continue;
        }
        for name in [names::EXITS, names::PORT_EXITS, names::MMIO_EXITS] {
            let count = fs::read_to_string(entry.path().join(name))?;
            values.insert(name.to_owned(), count.trim().parse()?);
        }
    }
    Ok(())
}

/// Adds the resident memory of process `pid` that is not its guest's: of all mappings smaller than
/// half of guest memory.
pub fn add_memory(
    pid: u32,
    guest_mib: u32,
    values: &mut BTreeMap<String, f64>,
) -> anyhow::Result<()> {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let (memory, anonymous) = beyond_guest(&smaps, f64::from(guest_mib) * 512.0)?;
    values.insert(names::MEMORY.to_owned(), memory);
    values.insert(names::ANONYMOUS.to_owned(), anonymous);
    Ok(())
}

/// KiB resident in mappings of less than `limit_kib`, and how much of it is anonymous.
fn beyond_guest(smaps: &str, limit_kib: f64) -> anyhow::Result<(f64, f64)> {
    let (mut size, mut resident, mut anonymous) = (0.0, 0.0, 0.0);
    for line in smaps.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let Some(kib) = value.trim().strip_suffix(" kB") else {
            continue;
        };
        let kib: f64 = kib.trim().parse()?;
        match key {
            "Size" => size = kib,
            "Rss" if size < limit_kib => resident += kib,
            "Anonymous" if size < limit_kib => anonymous += kib,
            _ => {}
        }
    }
    Ok((resident, anonymous))
}

#[cfg(test)]
mod tests {
    use super::beyond_guest;

    #[test]
    fn mappings_of_guest_memory_do_not_count() {
        let smaps = "00400000-00452000 r-xp 00000000 08:02 173521 /usr/bin/vmm\n\
                     Size:                328 kB\nRss:      100 kB\nAnonymous:  4 kB\n\
                     7f0000000000-7f0010000000 rw-s 00000000 00:01 7 /memfd:guest-ram (deleted)\n\
                     Size:             262144 kB\nRss:    16384 kB\nAnonymous:  0 kB\n\
                     7ffc0000-7ffc1000 rw-p 00000000 00:00 0 [stack]\n\
                     Size:      132 kB\nRss:  20 kB\nAnonymous:  20 kB\n";
        assert_eq!(beyond_guest(smaps, 131_072.0).unwrap(), (120.0, 24.0));
    }
}
