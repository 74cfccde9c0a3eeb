//! What was measured, as a table and as figures.

use anyhow::Context;
use integration::disk_load::{Cost, Done};

use super::place::TestFile;
use crate::bench::figure::{Better, Figure};
use crate::bench::median::Spread;

/// What a load of the guest cost.
type Counted = (Done, Cost);

/// One file at one depth.
pub struct Row<'a> {
    /// The file.
    pub place: &'a TestFile,
    /// Requests in flight.
    pub depth: u32,
    /// Requests a second without a guest, of each round.
    pub raw: Vec<f64>,
    /// Those of a guest that polls.
    pub polls: Vec<f64>,
    /// Those of a guest that sleeps until interrupts.
    pub sleeps: Vec<f64>,
    /// System calls a request without a guest.
    pub raw_calls: Option<f64>,
    /// What requests cost of a guest that polls.
    pub polls_cost: Option<Counted>,
    /// What they cost of one that sleeps.
    pub sleeps_cost: Option<Counted>,
}

const RAW: &str = "io_uring alone";
const POLLS: &str = "guest, polling";
const SLEEPS: &str = "guest, interrupts";

impl<'a> Row<'a> {
    /// Nothing measured yet.
    pub fn new(place: &'a TestFile, depth: u32) -> Self {
        Self {
            place,
            depth,
            raw: Vec::new(),
            polls: Vec::new(),
            sleeps: Vec::new(),
            raw_calls: None,
            polls_cost: None,
            sleeps_cost: None,
        }
    }

    /// What a guest has of what there is without one, round by round.
    fn ratio(&self, guest: &[f64]) -> Spread {
        Spread::of_ratios(guest, &self.raw)
    }
}

/// Prints rates, then costs.
pub fn print(rows: &[Row<'_>]) {
    println!("4 KiB random reads a second: median, least and most of all rounds");
    println!(
        "{:6} {:>5}  {:17} {:>9} {:>9} {:>9}  {:>6} {:>6} {:>6}  {:>6}",
        "FILE", "DEPTH", "WHO", "MEDIAN", "LEAST", "MOST", "OF RAW", "LEAST", "MOST", "BUDGET"
    );
    for row in rows {
        for (who, values) in [(RAW, &row.raw), (POLLS, &row.polls), (SLEEPS, &row.sleeps)] {
            let iops = Spread::of(values);
            print!(
                "{:6} {:>5}  {who:17} {:>9.0} {:>9.0} {:>9.0}",
                row.place.name, row.depth, iops.median, iops.least, iops.most
            );
            let ratio = row.ratio(values);
            match who {
                RAW => println!(),
                _ => println!(
                    "  {:>6.2} {:>6.2} {:>6.2}  {:>6}",
                    ratio.median,
                    ratio.least,
                    ratio.most,
                    if who == POLLS && row.depth > 1 {
                        row.place.budget.0.to_string()
                    } else {
                        "-".to_owned()
                    }
                ),
            }
        }
    }
    println!("for each request");
    println!(
        "{:6} {:>5}  {:17} {:>9} {:>10} {:>12} {:>9} {:>10}",
        "FILE", "DEPTH", "WHO", "EXITS", "USER EXITS", "SYSTEM CALLS", "KICKS", "INTERRUPTS"
    );
    for row in rows {
        if let Some(calls) = row.raw_calls {
            println!(
                "{:6} {:>5}  {RAW:17} {:>9} {:>10} {calls:>12.3}",
                row.place.name, row.depth, "-", "-"
            );
        }
        for (who, counted) in [(POLLS, &row.polls_cost), (SLEEPS, &row.sleeps_cost)] {
            let Some(each) = counted.as_ref().and_then(each) else {
                continue;
            };
            println!(
                "{:6} {:>5}  {who:17} {:>9.3} {:>10.3} {:>12.3} {:>9.3} {:>10.3}",
                row.place.name,
                row.depth,
                each.exits,
                each.user_exits,
                each.calls,
                each.kicks,
                each.irqs
            );
        }
    }
}

/// What one request costs.
struct Each {
    exits: f64,
    user_exits: f64,
    calls: f64,
    kicks: f64,
    irqs: f64,
}

/// A count, of which there are fewer than four thousand million.
pub fn as_f64(count: u64) -> anyhow::Result<f64> {
    let count = u32::try_from(count).context("too many to count")?;
    Ok(f64::from(count))
}

fn each((done, cost): &Counted) -> Option<Each> {
    let of = |count| as_f64(count).ok().map(|count| count / done.requests);
    Some(Each {
        exits: of(cost.exits)?,
        user_exits: of(cost.user_exits)?,
        calls: of(cost.calls)?,
        kicks: done.kicks / done.requests,
        irqs: done.irqs / done.requests,
    })
}

/// The same as figures.
pub fn figures(rows: &[Row<'_>]) -> Vec<Figure> {
    rows.iter().flat_map(of_row).collect()
}

fn of_row(row: &Row<'_>) -> Vec<Figure> {
    let name = |what: &str| format!("{}, depth {}: {what}", row.place.name, row.depth);
    let mut figures = Vec::new();
    for (who, values) in [(RAW, &row.raw), (POLLS, &row.polls), (SLEEPS, &row.sleeps)] {
        let iops = Spread::of(values);
        figures.push(Figure::of_rounds(&name(who), iops, "IOPS", Better::More));
        if who == RAW {
            continue;
        }
        let name = name(&format!("{who} of {RAW}"));
        let figure = Figure::of_rounds(&name, row.ratio(values), "ratio", Better::More);
        figures.push(if who == POLLS && row.depth > 1 {
            figure.budget(row.place.budget.0, row.place.budget.1)
        } else {
            figure
        });
    }
    for (who, counted) in [(POLLS, &row.polls_cost), (SLEEPS, &row.sleeps_cost)] {
        let Some(each) = counted.as_ref().and_then(each) else {
            continue;
        };
        for (what, value) in [
            ("exits", each.exits),
            ("exits to the VMM", each.user_exits),
            ("system calls", each.calls),
            ("kicks", each.kicks),
            ("interrupts", each.irqs),
        ] {
            let name = name(&format!("{who}, {what}"));
            figures.push(Figure::new(&name, value, "per I/O", Better::Less));
        }
    }
    figures
}
