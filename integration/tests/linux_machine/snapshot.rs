//! A guest that goes on in another process, with all devices at work.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use integration::commands::Commands;
use integration::image::busybox::GuestImage;
use integration::node::Node;
use integration::{skip, skip_if};

use crate::clocks::Clocks;
use crate::every_device::{INSIDE, everything};
use crate::guest::{PATIENCE, SCRATCH};
use integration::linux_machine::Machine;

/// How long whatever is under way may take to go on.
// A node in which a guest runs may have little of the machine beside builds.
const SOON: Duration = Duration::from_secs(300);
/// How many rounds the campaign has, if not 20.
const ROUNDS: &str = "KVMLET_ROUNDS";

/// A script that leaves work behind: three disks that are written and verified without end; a stream of
/// numbers to the node and back, in which none may be missing; and two echoes, at a port and at a
/// socket. The rates leave an emulated CPU room for the rest: guests that are always busy spend its time
/// on their ticks.
// The port's echo ends at once while nobody is connected; without its pause it would spin.
pub const LOAD: &str = r#"
udevadm trigger --subsystem-match=virtio-ports
udevadm settle
cat >/tmp/jobs <<'END'
[global]
rw=randwrite
bsrange=4k-64k
size=2M
ioengine=libaio
iodepth=8
direct=1
verify=crc32c
verify_fatal=1
verify_backlog=8
time_based
runtime=1000000
rate_iops=15
thread
[vda]
filename=/dev/vda
[vdb]
filename=/dev/vdb
[vdc]
filename=/dev/vdc
END
{ fio --minimal --exitall_on_error /tmp/jobs >/tmp/fio 2>&1; echo $? >/tmp/fio-end; } &
echo 0 >/tmp/stream
{
    i=1
    while [ ! -e /tmp/stop ]; do seq $i $((i + 99)); i=$((i + 100)); sleep 0.3; done
} | socat - TCP:10.77.0.1:5001 | awk -W interactive '
    $1 != NR { print "broken-at-" NR "-" $1 >"/tmp/stream"; wrong = 1; exit }
    NR % 100 == 0 { print NR >"/tmp/stream"; close("/tmp/stream") }
    END { if (!wrong) print "done" >"/tmp/stream" }' &
socat VSOCK-LISTEN:1024,fork EXEC:cat &
while :; do cat <>/dev/virtio-ports/echo >&0; sleep 0.2; done &
"#;

/// How far each work is: numbers that came back, reads and writes of each disk; and how fio ended. The
/// file of the stream is empty while it is written.
const PROGRESS: &str = "while ! read n </tmp/stream; do sleep 0.1; done; echo $n; \
                        for disk in vda vdb vdc; do \
                        read r x x x w x </sys/block/$disk/stat; echo $r $w; done; \
                        cat /tmp/fio-end 2>/dev/null";
const WORKS: usize = 7;

/// By a socket to the node and back. Linux waits no longer than two seconds for a connection, which
/// here may be too short.
const CALL_BACK: &str = "for try in 1 2 3 4 5 6 7 8 9; do \
                         echo back | socat -t 60 - VSOCK-CONNECT:2:7 2>/dev/null && break; done";

/// Starts a machine: anew, or as the `number`th that goes on with the snapshot.
pub fn start<'a>(node: &'a Node, flags: &[String], number: u32) -> anyhow::Result<Machine<'a>> {
    let mut flags = flags.to_vec();
    flags.push(format!("--generation-id={:032x}", number + 1));
    if number > 0 {
        flags.push(format!("--restore={SCRATCH}/snapshot"));
    }
    Machine::start(node, &flags)
}

fn progress(machine: &mut Machine<'_>) -> anyhow::Result<Vec<u64>> {
    let output = machine.shell_output(PROGRESS)?;
    let works: Result<Vec<u64>, _> = output.split_whitespace().map(str::parse).collect();
    match works {
        Ok(works) if works.len() == WORKS => Ok(works),
        _ => anyhow::bail!("{output}: {}", machine.shell_output("tail -n 5 /tmp/fio")?),
    }
}

/// Waits until every work got on since `before`.
fn gets_on(machine: &mut Machine<'_>, before: &[u64]) -> anyhow::Result<Vec<u64>> {
    let until = Instant::now() + SOON;
    loop {
        let now = progress(machine)?;
        if now.iter().zip(before).all(|(now, before)| now > before) {
            return Ok(now);
        }
        ensure!(Instant::now() < until, "{before:?}, now {now:?}");
        // Programs of the guest count in files, and are asked over its terminal.
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Programs of node and guest reach each other by the port and by sockets, both ways.
fn talk(node: &Node, machine: &mut Machine<'_>) -> anyhow::Result<()> {
    // Of the port no end comes back: `-t` is how long socat waits for it in vain.
    let socat = |wait: u32| format!("chroot /mnt/tools socat -t {wait} - UNIX-CONNECT:{INSIDE}");
    // Input stays open until the answer is there: at its end socat would close the port.
    let port = format!(
        "(echo by the port; sleep 1) | {}/port | head -n 1 | grep -x 'by the port'",
        socat(1)
    );
    node.wait_for(&port, SOON).context("port")?;
    let vsock = format!(
        "printf 'CONNECT 1024\nby vsock\n' | {}/vsock | grep -x 'by vsock'",
        socat(20)
    );
    node.wait_for(&vsock, SOON).context("vsock")?;
    let back = machine.shell_output(CALL_BACK)?;
    ensure!(back == "back", "vsock of the guest: {back}");
    Ok(())
}

/// Ends the guest's work, in which nothing went wrong.
fn finish(machine: &mut Machine<'_>) -> anyhow::Result<()> {
    machine.shell_output("touch /tmp/stop; killall -INT fio")?;
    let until = Instant::now() + SOON;
    // fio says 128 when it was interrupted, and 0 as the error of each disk that had none.
    let asked = "cat /tmp/stream /tmp/fio-end; grep -c '^3;fio-[^;]*;vd.;0;0;' /tmp/fio";
    while machine.shell_output(asked)? != "done 128 3" {
        let output = machine.shell_output("cat /tmp/stream /tmp/fio-end /tmp/fio | cut -c 1-60")?;
        ensure!(Instant::now() < until, "{output}");
        // As above: the guest is asked over its terminal.
        std::thread::sleep(Duration::from_millis(500));
    }
    let troubles =
        machine.shell_output("dmesg | grep -iE 'bug:|lockup|stalls on|clocksource.*unstable'")?;
    println!("trouble in the guest's log: {troubles:?}");
    ensure!(!troubles.contains("unstable"), "a clock: {troubles}");
    Ok(())
}

/// A guest with [`LOAD`] is saved, stopped and restored in another process, `rounds` times: each time
/// every work of it goes on, none is lost, and its clocks go by the rule.
pub fn goes_on<'a>(
    node: &'a Node,
    mut machine: Machine<'a>,
    flags: &[String],
    rounds: u32,
) -> anyhow::Result<()> {
    let mut before = gets_on(&mut machine, &[0; WORKS]).context("before any snapshot")?;
    talk(node, &mut machine)?;
    for round in 1..=rounds {
        let clocks = Clocks::read(node, &mut machine)?;
        let began = Instant::now();
        machine.save(&format!("{SCRATCH}/snapshot"))?;
        let saved = began.elapsed();
        machine.stop()?;
        machine = start(node, flags, round)?;
        machine.wait_for_status("MACHINE_STATE_RUNNING", SOON)?;
        let stood = began.elapsed();
        let restored = gets_on(&mut machine, &before);
        before = restored.with_context(|| format!("round {round}"))?;
        let works = began.elapsed() - stood;
        talk(node, &mut machine).with_context(|| format!("round {round}"))?;
        let ran = clocks.check(&Clocks::read(node, &mut machine)?, stood)?;
        println!(
            "round {round}: saved in {saved:.1?}, runs after {stood:.1?}, everything works {works:.1?} \
             later; {ran}: {before:?}"
        );
    }
    finish(&mut machine)?;
    machine.stop()
}

fn campaign(nic: &str, cpus: &str, rounds: u32) -> anyhow::Result<()> {
    let (node, flags) = everything(LOAD, cpus, nic, "kvmlet.after=shell")?;
    let began = Instant::now();
    let mut machine = start(&node, &flags, 0)?;
    machine.wait_for(GuestImage::PROMPT, PATIENCE)?;
    println!("booted after {:?}", began.elapsed());
    goes_on(&node, machine, &flags, rounds)
}

fn rounds() -> anyhow::Result<u32> {
    match std::env::var(ROUNDS) {
        Ok(set) => set.parse().with_context(|| format!("{ROUNDS}={set}")),
        Err(_) => Ok(20),
    }
}

/// `KVMLET_ROUNDS=20 cargo test --profile suite -p integration --test linux_machine -- --ignored goes_on_in_many`
#[test]
#[ignore = "a campaign: twenty rounds take some minutes"]
fn a_busy_guest_goes_on_in_many_processes() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    campaign("", "2x2x1", rounds()?)
}

/// `KVMLET_ROUNDS=5 cargo test --profile suite -p integration --test linux_machine -- --ignored nic_of_vhost_goes_on`
#[test]
#[ignore = "a campaign: twenty rounds take some minutes"]
fn a_busy_guest_with_a_nic_of_vhost_goes_on() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    campaign(",vhost", "2x2x1", rounds()?)
}
