//! A machine's status as a line of text, for people and for scripts.

use std::io::{self, Write};

use proto_vmm::v1::{BalloonStats, MachineStatus};

/// Prints a line to standard error at once.
pub fn print(line: &str) {
    // Who does not listen misses it.
    io::stderr()
        .write_all(format!("vmm-front: {line}\n").as_bytes())
        .ok();
}

/// The state, then what is to be said of it as `name=value`; counts that are 0 are left out.
pub fn line(status: &MachineStatus) -> String {
    let mut line = format!("{} resets={}", status.state().as_str_name(), status.resets);
    let mut add = |name: &str, value: String| line += &format!(" {name}={value}");
    if status.resets > 0 {
        add("last_reset", status.last_reset().as_str_name().to_owned());
    }
    if status.watchdog_expirations > 0 {
        add("watchdog", status.watchdog_expirations.to_string());
    }
    if status.panics > 0 {
        add("panics", status.panics.to_string());
    }
    if status.pause_reason != 0 {
        add("pause", status.pause_reason().as_str_name().to_owned());
    }
    if let Some(bytes) = status.balloon_target_bytes {
        add("balloon_target", bytes.to_string());
    }
    if let Some(bytes) = status.balloon_actual_bytes {
        add("balloon_actual", bytes.to_string());
    }
    line
}

/// What the guest said of its memory.
pub fn balloon(stats: &BalloonStats) -> String {
    let values = [
        ("age_ms", stats.age_ms),
        ("free", stats.free_bytes),
        ("total", stats.total_bytes),
        ("available", stats.available_bytes),
        ("cache", stats.cache_bytes),
        ("major_faults", stats.major_faults),
        ("minor_faults", stats.minor_faults),
    ];
    let mut line = format!("released={}", stats.released_bytes);
    for (name, value) in values {
        if let Some(value) = value {
            line += &format!(" {name}={value}");
        }
    }
    line
}
