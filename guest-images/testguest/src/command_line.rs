//! The kernel command line: which tests run, how, and what comes after them.

mod cases;
mod load;

pub use cases::{Attack, Attacks, NetCase, NetCases};
pub use load::{Access, Load};

/// How the guest learns that a device is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// MSI-X interrupts; the CPU sleeps meanwhile.
    Irq,
    /// Reading the used ring over and over, interrupts suppressed.
    Poll,
}

/// What the guest does after its tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    /// ACPI S5.
    PowerOff,
    /// Sleep for ever, using no CPU time.
    Idle,
    /// A counter line every [`Settings::tick_ms`].
    Tick,
    /// Wait for the power button, and obey it.
    Button,
    /// Send received console lines back.
    Echo,
    /// Send the frames that console lines name, and print a line for each that comes.
    Frames,
    /// Reset the machine.
    Reboot,
    /// A triple fault.
    Panic,
    /// A watchdog that nobody feeds.
    Watchdog,
    /// [`Settings::pvpanic`] to the panic device at its I/O port.
    PvpanicPort,
    /// The same to the one on PCI.
    PvpanicPci,
    /// A wait for another generation id.
    Generation,
    /// Attacks by two CPUs on all devices, without end.
    Storm,
    /// Numbered blocks to every disk, without end.
    Numbers,
    /// Bus mastering off for all devices; then as [`Tick`](Self::Tick).
    Detach,
}

/// What the command line asks for; what it leaves out has a default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Test block devices.
    pub blk: bool,
    /// Test network devices.
    pub net: bool,
    /// Test entropy devices.
    pub rng: bool,
    /// Test console devices, with a host that plays the peers; not unless asked for.
    pub console: bool,
    /// Test balloons, in step with a host that leads; not unless asked for.
    pub balloon: bool,
    /// Test socket devices: only where it is asked for, as they need a peer.
    pub vsock: bool,
    /// What is attacked before the tests; nothing unless asked for.
    pub attacks: Attacks,
    /// Interrupts or polling.
    pub mode: Mode,
    /// What follows the tests.
    pub afterwards: Afterwards,
    /// KiB written to and verified on each block device.
    pub blk_kib: u64,
    /// A load on block devices.
    pub load: Load,
    /// Frames sent to the echo peer.
    pub net_frames: u64,
    /// Tests of each NIC.
    pub net_cases: NetCases,
    /// MAC address of the echo peer.
    pub peer: [u8; 6],
    /// Peers of the console's port that come and go before its test ends.
    pub console_sessions: u64,
    /// The console's port is served as an agent in the guest would, instead of echoing.
    pub agent: bool,
    /// After so many answers that agent is silent; 0 for never.
    pub agent_answers: u64,
    /// Connections of the host that are echoed before the socket test ends.
    pub vsock_serve: u64,
    /// Port of the host that the guest connects to; 0 for none.
    pub vsock_connect: u32,
    /// KiB sent there.
    pub vsock_kib: u64,
    /// Milliseconds between two counter lines.
    pub tick_ms: u64,
    /// Counter lines before the power is switched off; 0 for no end.
    pub ticks: u64,
    /// What is written to a panic device.
    pub pvpanic: u8,
    /// Number of the first of the numbered blocks.
    pub numbers_from: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            blk: true,
            net: true,
            rng: true,
            console: false,
            balloon: false,
            vsock: false,
            attacks: Attacks::default(),
            mode: Mode::Irq,
            afterwards: Afterwards::PowerOff,
            blk_kib: 256,
            load: Load::default(),
            net_frames: 16,
            net_cases: NetCases::ECHO,
            peer: [0x02, 0x6b, 0x76, 0x6d, 0x00, 0x01],
            console_sessions: 1,
            agent: false,
            agent_answers: 0,
            vsock_serve: 0,
            vsock_connect: 0,
            vsock_kib: 64,
            tick_ms: 100,
            ticks: 0,
            pvpanic: 1,
            numbers_from: 1,
        }
    }
}

impl Settings {
    /// Reads a command line. Words without a meaning here are left alone, as Linux does; a known
    /// key with a value that makes no sense is handed to `complain`, and keeps its default.
    pub fn parse<'a>(line: &'a str, mut complain: impl FnMut(&'a str)) -> Self {
        let mut settings = Self::default();
        for word in line.split_ascii_whitespace() {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            if settings.set(key, value).is_none() {
                complain(word);
            }
        }
        settings
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "tests" => self.set_tests(value)?,
            "attack" => self.attacks = Attacks::parse(value)?,
            "mode" => {
                self.mode = match value {
                    "irq" => Mode::Irq,
                    "poll" => Mode::Poll,
                    _ => return None,
                }
            }
            "then" => {
                self.afterwards = match value {
                    "poweroff" => Afterwards::PowerOff,
                    "idle" => Afterwards::Idle,
                    "tick" => Afterwards::Tick,
                    "button" => Afterwards::Button,
                    "echo" => Afterwards::Echo,
                    "frames" => Afterwards::Frames,
                    "reboot" => Afterwards::Reboot,
                    "panic" => Afterwards::Panic,
                    "watchdog" => Afterwards::Watchdog,
                    "pvpanic-port" => Afterwards::PvpanicPort,
                    "pvpanic-pci" => Afterwards::PvpanicPci,
                    "generation" => Afterwards::Generation,
                    "storm" => Afterwards::Storm,
                    "numbers" => Afterwards::Numbers,
                    "detach" => Afterwards::Detach,
                    _ => return None,
                }
            }
            "blk_kib" => self.blk_kib = positive(value)?,
            "net_frames" => self.net_frames = positive(value)?,
            "console_sessions" => self.console_sessions = positive(value)?,
            "agent_answers" => {
                self.agent = true;
                self.agent_answers = value.parse().ok()?;
            }
            "net_cases" => self.net_cases = NetCases::parse(value)?,
            "peer" => self.peer = mac_address(value)?,
            "vsock_serve" => self.vsock_serve = value.parse().ok()?,
            "vsock_connect" => self.vsock_connect = value.parse().ok()?,
            "vsock_kib" => self.vsock_kib = positive(value)?,
            "tick_ms" => self.tick_ms = positive(value)?,
            "ticks" => self.ticks = value.parse().ok()?,
            "pvpanic" => self.pvpanic = value.parse().ok()?,
            "numbers_from" => self.numbers_from = positive(value)?,
            _ => self.load.set(key, value)?,
        }
        Some(())
    }

    fn set_tests(&mut self, list: &str) -> Option<()> {
        let mut wanted = Self {
            blk: false,
            net: false,
            rng: false,
            console: false,
            balloon: false,
            vsock: false,
            ..self.clone()
        };
        for name in list.split(',') {
            match name {
                "blk" => wanted.blk = true,
                "net" => wanted.net = true,
                "rng" => wanted.rng = true,
                "console" => wanted.console = true,
                "balloon" => wanted.balloon = true,
                "vsock" => wanted.vsock = true,
                "none" => {}
                _ => return None,
            }
        }
        *self = wanted;
        Some(())
    }
}

fn positive(value: &str) -> Option<u64> {
    value.parse().ok().filter(|&number| number > 0)
}

fn mac_address(value: &str) -> Option<[u8; 6]> {
    let mut address = [0; 6];
    let mut parts = value.split(':');
    for byte in &mut address {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> (Settings, Vec<&str>) {
        let mut complaints = Vec::new();
        let settings = Settings::parse(line, |word| complaints.push(word));
        (settings, complaints)
    }

    #[test]
    fn an_empty_line_runs_everything_with_interrupts_and_powers_off() {
        assert_eq!(parse(""), (Settings::default(), vec![]));
    }

    #[test]
    fn tests_mode_and_what_follows_are_chosen() {
        let (settings, complaints) = parse(
            "tests=blk,rng mode=poll then=tick ticks=3 blk_kib=64 peer=0a:00:00:00:00:ff pvpanic=2",
        );
        assert!(complaints.is_empty());
        assert!(settings.blk && settings.rng && !settings.net);
        assert!(!settings.console && !settings.balloon);
        assert_eq!(settings.mode, Mode::Poll);
        assert_eq!(settings.afterwards, Afterwards::Tick);
        assert_eq!((settings.ticks, settings.blk_kib), (3, 64));
        assert_eq!(settings.pvpanic, 2);
        assert_eq!(settings.peer, [0x0a, 0, 0, 0, 0, 0xff]);
    }

    #[test]
    fn numbered_blocks_begin_at_the_configured_block() {
        let (settings, complaints) = parse("then=numbers numbers_from=41");
        assert!(complaints.is_empty());
        assert_eq!(settings.afterwards, Afterwards::Numbers);
        assert_eq!(settings.numbers_from, 41);
    }

    #[test]
    fn cases_run_in_their_own_order() {
        let (settings, complaints) = parse("net_cases=burst,echo,pairs");
        assert!(complaints.is_empty());
        let cases: Vec<_> = settings.net_cases.iter().collect();
        assert_eq!(cases, [NetCase::Echo, NetCase::Pairs, NetCase::Burst]);
        let (settings, complaints) = parse("net_cases=echo,flood");
        assert_eq!(complaints, ["net_cases=echo,flood"]);
        assert_eq!(settings, Settings::default());
    }

    #[test]
    fn all_attacks_are_those_that_a_machine_survives() {
        let (settings, complaints) = parse("attack=all");
        assert!(complaints.is_empty());
        assert!(settings.attacks.contain(Attack::Blk) && settings.attacks.contain(Attack::Chips));
        assert!(!settings.attacks.contain(Attack::Execute));
        let (settings, complaints) = parse("attack=blk,execute then=storm");
        assert!(complaints.is_empty());
        assert!(settings.attacks.contain(Attack::Execute));
        assert!(!settings.attacks.contain(Attack::Net));
        assert_eq!(settings.afterwards, Afterwards::Storm);
        assert_eq!(parse("attack=floppy").1, ["attack=floppy"]);
    }

    #[test]
    fn a_bad_value_is_named_and_its_default_stays() {
        let (settings, complaints) = parse("console=ttyS0 mode=fast tests=blk,floppy peer=1:2:3");
        assert_eq!(complaints, ["mode=fast", "tests=blk,floppy", "peer=1:2:3"]);
        assert_eq!(settings, Settings::default());
    }
}
