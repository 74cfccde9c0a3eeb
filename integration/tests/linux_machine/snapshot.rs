//! A guest that goes on in another process, with all devices at work.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use integration::commands::Commands;
use integration::image::busybox::GuestImage;
use integration::node::Node;
use integration::{skip, skip_if};

use crate::guest::{self, PATIENCE, SCRATCH};
use crate::machine::Machine;

/// Disks of every way to do I/O.
const DISKS: [(&str, &str); 3] = [
    ("vda", "queues=4,discard"),
    ("vdb", "cache=none,queues=2,logical=4096,physical=4096"),
    ("vdc", "cache=writethrough,io=threads,thread=slow"),
];
/// Directory of the sockets, for programs of the tools disk, and for all others.
const INSIDE: &str = "/tmp/sockets";
const OUTSIDE: &str = "/mnt/tools/tmp/sockets";
/// How long whatever is under way may take to go on.
const SOON: Duration = Duration::from_secs(120);

/// Three programs that write and verify until `/tmp/stop` is there; a stream of numbers to the node and
/// back, in which none may be missing; and two echoes, at a port and at a socket.
const SCRIPT: &str = r#"
udevadm trigger --subsystem-match=virtio-ports
udevadm settle
cat >/tmp/work <<'END'
n=0
while [ ! -e /tmp/stop ]; do
    fio --name=$1 --filename=/dev/$1 --rw=randwrite --bsrange=4k-64k --size=2M --ioengine=libaio \
        --iodepth=8 --direct=1 --verify=crc32c --verify_fatal=1 --do_verify=1 --minimal \
        >/tmp/log-$1 2>&1 || { echo broken >/tmp/fio-$1; exit; }
    n=$((n + 1))
    echo $n >/tmp/fio-$1
done
echo done >/tmp/fio-$1
END
echo 0 >/tmp/stream
for disk in vda vdb vdc; do echo 0 >/tmp/fio-$disk; sh /tmp/work $disk & done
{
    i=1
    while [ ! -e /tmp/stop ]; do seq $i $((i + 499)); i=$((i + 500)); sleep 0.1; done
} | socat - TCP:10.77.0.1:5001 | awk '
    $1 != NR { print "broken-at-" NR "-" $1 >"/tmp/stream"; wrong = 1; exit }
    NR % 500 == 0 { print NR >"/tmp/stream"; close("/tmp/stream") }
    END { if (!wrong) print "done" >"/tmp/stream" }' &
socat VSOCK-LISTEN:1024,fork EXEC:cat &
while :; do cat <>/dev/virtio-ports/echo >&0; sleep 0.2; done &
"#;

/// By a socket to the node and back.
const CALL_BACK: &str = "for try in 1 2 3 4 5 6 7 8 9; do \
                         echo back | socat -t 20 - VSOCK-CONNECT:2:7 2>/dev/null && break; done";

fn flags(node: &Node) -> anyhow::Result<Vec<String>> {
    for (name, _) in DISKS {
        node.sh(&format!("truncate -s 32M {SCRATCH}/{name}"))?;
    }
    let disks = DISKS.map(|(name, options)| format!("{SCRATCH}/{name},{options}"));
    let disks: Vec<&str> = disks.iter().map(String::as_str).collect();
    let mut flags = guest::flags(node, SCRIPT, &disks, "kvmlet.after=shell")?;
    flags.extend(
        [
            "--cpus=2x2x1",
            "--memory=448M",
            "--net=tap0,mac=02:00:00:00:00:07",
            "--rng",
            "--spare-ports",
            "--port=console,console",
            &format!("--port=echo,listen={OUTSIDE}/port"),
            "--balloon=0,reporting,stats=1000",
            &format!("--vsock=5,listen={OUTSIDE}/vsock,broker={OUTSIDE}"),
            "--watchdog=reset",
            "--pvpanic=isa",
            "--pvpanic=pci",
        ]
        .map(str::to_owned),
    );
    Ok(flags)
}

fn start<'a>(node: &'a Node, flags: &[String], number: u32) -> anyhow::Result<Machine<'a>> {
    let mut flags = flags.to_vec();
    flags.push(format!("--generation-id={:032x}", number + 1));
    if number > 0 {
        flags.push(format!("--restore={SCRATCH}/snapshot"));
    }
    Machine::start(node, &flags)
}

/// The other ends of what the guest does.
fn serve(node: &Node) -> anyhow::Result<()> {
    node.sh(&format!(
        "mkdir -p {OUTSIDE}
         chroot /mnt/tools socat TCP-LISTEN:5001 EXEC:cat >/dev/null 2>&1 &
         chroot /mnt/tools socat UNIX-LISTEN:{INSIDE}/7,fork EXEC:cat >/dev/null 2>&1 &"
    ))?;
    Ok(())
}

/// How many numbers came back, and how often each disk was written and verified.
fn progress(machine: &mut Machine<'_>) -> anyhow::Result<Vec<u64>> {
    let told = machine.tell("cat /tmp/stream /tmp/fio-*")?;
    told.split_whitespace()
        .map(|word| word.parse().with_context(|| told.clone()))
        .collect()
}

/// Waits until the stream and each disk got on since `before`.
fn gets_on(machine: &mut Machine<'_>, before: &[u64]) -> anyhow::Result<Vec<u64>> {
    let until = Instant::now() + SOON;
    loop {
        let now = progress(machine)?;
        if now.iter().zip(before).all(|(now, before)| now > before) {
            return Ok(now);
        }
        ensure!(Instant::now() < until, "{before:?}, now {now:?}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Programs of node and guest reach each other by the port and by sockets, both ways.
fn talk(node: &Node, machine: &mut Machine<'_>) -> anyhow::Result<()> {
    let socat = format!("chroot /mnt/tools socat -t 20 - UNIX-CONNECT:{INSIDE}");
    let port =
        format!("(echo by the port; sleep 2) | {socat}/port | head -n 1 | grep -x 'by the port'");
    node.wait_for(&port, SOON).context("port")?;
    let vsock = format!("printf 'CONNECT 1024\nby vsock\n' | {socat}/vsock | grep -x 'by vsock'");
    node.wait_for(&vsock, SOON).context("vsock")?;
    // Linux waits no longer than two seconds for a connection, which here may be too short.
    let back = machine.tell(CALL_BACK)?;
    ensure!(back == "back", "vsock of the guest: {back}");
    Ok(())
}

fn goes_on(rounds: u32) -> anyhow::Result<()> {
    let node = guest::node()?;
    serve(&node)?;
    let flags = flags(&node)?;
    let began = Instant::now();
    let mut machine = start(&node, &flags, 0)?;
    machine.wait_for(GuestImage::PROMPT, PATIENCE)?;
    println!("booted after {:?}", began.elapsed());
    let mut before = gets_on(&mut machine, &[0, 0, 0, 0]).context("before any snapshot")?;
    talk(&node, &mut machine)?;
    for round in 1..=rounds {
        let began = Instant::now();
        machine.save(&format!("{SCRATCH}/snapshot"))?;
        let saved = began.elapsed();
        machine.stop()?;
        machine = start(&node, &flags, round)?;
        let restored = gets_on(&mut machine, &before);
        before = restored.with_context(|| format!("round {round}"))?;
        talk(&node, &mut machine).with_context(|| format!("round {round}"))?;
        println!(
            "round {round}: saved in {saved:?}, gets on after {:?}: {before:?}",
            began.elapsed()
        );
    }
    machine.tell("touch /tmp/stop; wait %1 %2 %3 %4 2>/dev/null")?;
    let until = Instant::now() + SOON;
    while machine.tell("cat /tmp/stream /tmp/fio-*")? != "done done done done" {
        let told = machine.tell("cat /tmp/stream /tmp/fio-* /tmp/log-*")?;
        ensure!(Instant::now() < until, "{told}");
        std::thread::sleep(Duration::from_millis(500));
    }
    let troubles =
        machine.tell("dmesg -l emerg,alert,crit,err,warn | grep -ciE 'bug|lockup|stall|error'")?;
    println!("lines of trouble in the guest's log: {troubles}");
    machine.stop()
}

/// `cargo test --release -p integration --test linux_machine -- --ignored other_processes`
#[test]
#[ignore = "a campaign of some minutes"]
fn a_busy_guest_goes_on_in_other_processes() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    goes_on(2)
}

/// `cargo test --release -p integration --test linux_machine -- --ignored twenty_processes`
#[test]
#[ignore = "a campaign of some minutes"]
fn a_busy_guest_goes_on_in_twenty_processes() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    goes_on(20)
}
