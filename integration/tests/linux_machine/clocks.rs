//! How a guest's clocks go on after a snapshot: docs/snapshots.md has the rule.

use std::time::Duration;

use anyhow::{Context, ensure};
use integration::commands::Commands;
use integration::node::Node;

use integration::linux_machine::Machine;

/// Readings are not taken at the same moment, and the guest's shell takes its time under emulation.
const SLACK_SECONDS: f64 = 3.0;

/// What a guest's clocks showed, and the node's.
#[derive(Debug)]
pub struct Clocks {
    /// Seconds since the guest's start.
    guest_up: f64,
    /// Seconds since 1970 by the guest's system clock, and by its RTC.
    guest_time: f64,
    guest_rtc: f64,
    /// The node's, after the guest's were read.
    node_up: f64,
    node_time: f64,
    source: String,
}

impl Clocks {
    /// Reads all.
    pub fn read(node: &Node, machine: &mut Machine<'_>) -> anyhow::Result<Self> {
        let guest = machine.shell_output(
            "cut -d ' ' -f 1 /proc/uptime; date +%s; cat /sys/class/rtc/rtc0/since_epoch \
             /sys/devices/system/clocksource/clocksource0/current_clocksource",
        )?;
        let node = node.sh("cut -d ' ' -f 1 /proc/uptime; date +%s")?;
        let mut words = guest.split_whitespace().chain(node.split_whitespace());
        let mut word = || words.next().with_context(|| format!("{guest} and {node}"));
        let number = |word: anyhow::Result<&str>| anyhow::Ok(word?.parse::<f64>()?);
        Ok(Self {
            guest_up: number(word())?,
            guest_time: number(word())?,
            guest_rtc: number(word())?,
            source: word()?.to_owned(),
            node_up: number(word())?,
            node_time: number(word())?,
        })
    }

    /// Compares with later readings: at least so long as `stood` the guest was not there, and took no
    /// notice. Returns what it took notice of, for people.
    pub fn check(&self, later: &Self, stood: Duration) -> anyhow::Result<String> {
        let (guest, node) = (later.guest_up - self.guest_up, later.node_up - self.node_up);
        let ran = node - stood.as_secs_f64();
        ensure!(
            guest >= 0.0 && guest <= ran + SLACK_SECONDS,
            "the guest's time went on by {guest:.1} s while it ran for {ran:.1} s: {self:?} {later:?}"
        );
        let time = later.guest_time - self.guest_time;
        ensure!(
            (time - guest).abs() <= SLACK_SECONDS,
            "the guest's system clock jumped: {self:?} {later:?}"
        );
        ensure!(
            (later.guest_rtc - later.node_time).abs() <= SLACK_SECONDS,
            "the guest's RTC is not its host's: {later:?}"
        );
        ensure!(
            self.source == later.source,
            "the guest trusts its clock no more: {self:?} {later:?}"
        );
        Ok(format!("its clock went on by {guest:.1} s of {node:.1} s"))
    }
}
