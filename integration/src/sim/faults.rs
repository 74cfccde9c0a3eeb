//! What goes wrong for a while: full disks, a clock that is set, VMMs that fall silent, cgroups that vanish.

use agent_plan::{BootTime, Holding, Millis, Timestamp};

use super::world::World;

impl World {
    /// What the node's wall clock shows.
    pub(crate) fn wall(&self) -> Timestamp {
        self.now.plus(self.weather.skew)
    }

    /// What its boot clock shows.
    pub(crate) fn boot_time(&self) -> BootTime {
        BootTime {
            boot_id: self.boot_id(),
            at: self.now.since(self.weather.booted_at),
        }
    }

    /// Nothing can be written down.
    pub(crate) fn store_is_full(&self) -> bool {
        self.now < self.weather.store_full_until
    }

    /// Nothing can be made on disk.
    pub(crate) fn disk_is_full(&self) -> bool {
        self.now < self.weather.disk_full_until
    }

    /// Space is there again.
    pub(crate) fn clear_up(&mut self) {
        self.weather.store_full_until = self.now;
        self.weather.disk_full_until = self.now;
    }

    /// A new boot; the clock on its board may be wrong.
    pub(crate) fn boot_anew(&mut self) {
        self.weather.booted_at = self.now;
        if self.weather.sets_clock && self.random.chance(50) {
            self.weather.set_clock(&mut self.random);
        }
    }

    /// Draws what happens next.
    pub(crate) fn change_weather(&mut self) {
        if self.random.below(300) == 0 {
            let spell = self.spell(40_000);
            self.weather.store_full_until = self.now.plus(spell);
            self.weather.seen.full_stores += 1;
            self.log(|| format!("disk     the store is full for {} ms", spell.0));
        }
        if self.random.below(300) == 0 {
            let spell = self.spell(40_000);
            self.weather.disk_full_until = self.now.plus(spell);
            self.weather.seen.full_disks += 1;
            self.log(|| format!("disk     is full for {} ms", spell.0));
        }
        if self.weather.sets_clock && self.random.below(60) == 0 {
            let before = self.wall();
            self.weather.set_clock(&mut self.random);
            let by = self.wall().0 - before.0;
            self.log(|| format!("clock    is set by {by} ms"));
        }
        for index in 0..self.processes.len() {
            self.trouble(index);
        }
    }

    /// A VMM falls silent or is heard again; its cgroup vanishes.
    fn trouble(&mut self, index: usize) {
        let now = self.now;
        let is_held = self.processes[index].silent_until > now;
        if !is_held && self.random.chance(10) {
            let answers = !self.processes[index].answers;
            let spell = if self.random.chance(20) {
                self.spell(90_000)
            } else {
                Millis(0)
            };
            self.processes[index].answers = answers;
            if !answers {
                self.processes[index].silent_until = now.plus(spell);
                self.weather.seen.silences += u64::from(spell.0 > 5000);
            }
        }
        if self.processes[index].enforced && self.random.below(400) == 0 {
            self.processes[index].enforced = false;
            self.holdings.remove(&Holding::Sandbox);
            self.weather.seen.lost_cgroups += 1;
            let incarnation = self.processes[index].incarnation;
            self.log(|| format!("vmm {incarnation}    has no cgroup any more"));
        }
    }

    fn spell(&mut self, longest: u64) -> Millis {
        Millis(i64::try_from(self.random.below(longest)).unwrap_or(0))
    }
}
