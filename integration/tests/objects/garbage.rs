//! Garbage: what depends on objects that are gone goes, and what its owner let go of stays.

use integration::agent::GuestSpec;
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::skip_if;

use super::{MAP, PATIENCE, started, succeed};

#[test]
fn what_a_vmi_owns_goes_with_it_unless_it_is_let_go_of() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    for (cascade, stays) in [("orphan", true), ("background", false)] {
        let guest = GuestSpec::testguest("web", "tests=none then=idle").without_devices();
        agent.apply(&guest.manifest())?;
        let uid = agent.value("web", ".metadata.uid")?;
        let owner = format!(
            "ownerReferences: [{{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, name: web, uid: {uid}}}]"
        );
        agent.apply(&MAP.replace("name: web", &format!("name: {cascade}, {owner}")))?;
        succeed(
            &agent,
            &format!("delete vmi web --grace-period 0 --cascade={cascade}"),
        )?;
        if stays {
            let owners = "get cm orphan -o jsonpath={.metadata.ownerReferences}";
            assert_eq!(succeed(&agent, owners)?, "");
        } else {
            host.wait_for(&format!("! kvmctl get cm {cascade}"), PATIENCE)?;
        }
    }
    succeed(&agent, "get cm orphan")?;
    Ok(())
}
