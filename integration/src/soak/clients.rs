//! Stock clients on the networks of a systemd node with the installed package: Debian's kernel, and ifupdown's dhclient,
//! systemd-networkd or busybox's udhcpc as Debian has them. Each guest is looked at in the same ways; a second node stands for
//! the world outside.
//!
//! ```text
//! guest ── kvmlet0 (pod network) ─┐
//!                                 ├ node ── 10.88.0.0/24, fd00:88::/64 ── outside: resolver, services
//! guest ── br0 (dnsmasq) ─────────┘
//! ```

mod checks;
pub mod liar;
mod place;
mod roster;

use anyhow::Context;

use checks::{CHECKS, Guest};
use place::ClientNodes;

pub use roster::{CLIENTS, Client};

/// The result of one guest.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub client: &'static str,
    /// For each check its name, and what was seen or why that is wrong.
    pub seen: Vec<(&'static str, Result<String, String>)>,
}

/// Runs a guest of each of `clients` and looks at it in every way. What fails does not keep others from being tried.
///
/// # Errors
/// When the nodes or the guest that all others speak to do not come up.
pub fn check_clients(
    clients: &[&'static Client],
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Row>> {
    let place = ClientNodes::boot()?;
    progress("both nodes run, and the package is installed");
    let mut peer = place.start_peer().context("the peer of all guests")?;
    let mut rows = Vec::new();
    for client in clients {
        let row = check_client(&place, client, &mut peer);
        progress(&line(&row));
        if let Some(failures) = failures(std::slice::from_ref(&row)) {
            progress(&failures);
        }
        rows.push(row);
        place.remove(client.name)?;
    }
    Ok(rows)
}

fn check_client(place: &ClientNodes, client: &'static Client, peer: &mut place::Shell) -> Row {
    let mut row = Row {
        client: client.name,
        seen: Vec::new(),
    };
    let guest = Guest::start(place, client, peer);
    let mut guest = match guest {
        Ok(guest) => guest,
        Err(why) => {
            row.seen.push(("start", Err(format!("{why:#}"))));
            return row;
        }
    };
    row.seen.push(("start", Ok(guest.took())));
    for (name, check) in CHECKS {
        let seen = check(&mut guest).map_err(|why| format!("{why:#}"));
        row.seen.push((name, seen));
    }
    row
}

/// A row as one line.
#[must_use]
pub fn line(row: &Row) -> String {
    let seen: Vec<String> = row
        .seen
        .iter()
        .map(|(name, seen)| match seen {
            Ok(seen) => format!("{name}: {seen}"),
            Err(_) => format!("{name}: FAILED"),
        })
        .collect();
    format!("{:<15} {}", row.client, seen.join("; "))
}

/// Everything that failed: guest, check, and what was seen.
#[must_use]
pub fn failures(rows: &[Row]) -> Option<String> {
    let of_row = |row: &Row| {
        let client = row.client;
        let failed = row.seen.iter().filter_map(|(name, seen)| {
            let why = seen.as_ref().err()?;
            Some(format!("{client}, {name}: {why}"))
        });
        failed.collect::<Vec<_>>()
    };
    let all: Vec<String> = rows.iter().flat_map(of_row).collect();
    (!all.is_empty()).then(|| all.join("\n"))
}
