//! Variables that are kept and that are not, by firmware of a few instructions on this machine's own KVM.

use anyhow::{Context, ensure};
use integration::agent::{Agent, CONFIG};
use integration::commands::Commands;
use integration::firmware_code::{
    first_time, image, print, print_at, program, reach_all, restart, stay, variables_at,
};
use integration::host::{self, Host};
use integration::skip_if;

use crate::PATIENCE;
use crate::vmi::{BLANK, NOTHING, manifest, wait_for_no_bootable_device};

/// Bytes of a variable store.
const STORE_BYTES: usize = 8192;

/// Firmware that prints a variable, sets it, prints it again, starts over once, and finds nothing to boot.
fn remembering() -> Vec<u8> {
    let variable = variables_at(STORE_BYTES) + 4096;
    image(
        &[
            reach_all(),
            print("["),
            print_at(variable),
            program(variable, b'n'),
            print_at(variable),
            print("]"),
            first_time(&restart()),
            print(&format!("\r\n{NOTHING}\r\n")),
            stay(),
        ]
        .concat(),
    )
}

#[test]
fn variables_live_as_long_as_the_vmi_or_as_its_name() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    host.put("/run/code.fd", 0o644, &remembering())?;
    host.put("/run/variables.fd", 0o644, &[b'v'; STORE_BYTES])?;
    host.sh(&format!(
        "printf '[firmware]\\nefi = \"/run/code.fd\"\\nefi_variables = \"/run/variables.fd\"\\n' >>{CONFIG}"
    ))?;
    agent.start()?;
    let run = |efi: &str, printed: &str| -> anyhow::Result<()> {
        let firmware = format!("{{bootloader: {{efi: {efi}}}}}");
        let text = manifest("web", &firmware, &[("blank", "", BLANK)]);
        agent.apply(&text.replace("512Mi", "64Mi"))?;
        let mut console = agent.console("web")?;
        let shown = console.read_until(NOTHING, PATIENCE)?;
        ensure!(shown.contains(printed), "{shown:?}, not {printed}");
        wait_for_no_bootable_device(&host, "web", NOTHING)?;
        ensure!(agent.value("web", ".status.phase")? == "Running");
        if efi.contains("persistent") {
            let refused = host.run(&["kvmlet", "nvram", "remove", "default/web"])?;
            ensure!(
                refused.code == Some(1) && refused.stderr.contains("in use"),
                "{refused}"
            );
        }
        let deleted = agent.kvmctl("delete vmi web")?;
        ensure!(deleted.code == Some(0), "{deleted}");
        Ok(())
    };
    let all = || {
        run("{secureBoot: false}", "[vn][nn]")?;
        run("{secureBoot: false}", "[vn][nn]")?;
        let kept = "{secureBoot: false, persistent: true}";
        run(kept, "[vn][nn]")?;
        run(kept, "[nn][nn]")?;
        let listed = host.sh("kvmlet nvram list")?;
        ensure!(
            listed.contains("default/web") && listed.ends_with("no\n"),
            "{listed}"
        );
        host.sh("kvmlet nvram remove default/web")?;
        ensure!(!host.sh("kvmlet nvram list")?.contains("default/web"));
        run(kept, "[vn][nn]")
    };
    all().with_context(|| agent.log())?;
    ensure!(
        host.sh("ls /var/lib/kvmlet/host/disks 2>/dev/null | wc -l")?
            .trim()
            == "0"
    );
    Ok(())
}
