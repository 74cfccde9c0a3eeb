//! Garbage: what depends on objects that are gone goes, what its owner let go of stays, and nobody waits for either.

use integration::agent::GuestSpec;
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::skip_if;

use super::{MAP, PATIENCE, put, started, succeed};

/// Objects that one owner has.
const DEPENDENTS: u64 = 1000;

#[test]
fn controllers_go_on_while_garbage_is_collected() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.apply(MAP)?;
    let uid = succeed(&agent, "get cm web -o jsonpath={.metadata.uid}")?;
    let owner =
        format!("ownerReferences: [{{apiVersion: v1, kind: ConfigMap, name: web, uid: {uid}}}]");
    let mut manifest = String::new();
    for number in 0..DEPENDENTS {
        manifest.push_str(&format!(
            "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: a{number}, {owner}}}\n---\n"
        ));
    }
    put(&host, &manifest)?;
    succeed(&agent, "create -f /run/kvmlet-test/object.yaml")?;
    let guest = GuestSpec::testguest("guest", "tests=none then=idle").without_devices();
    put(&host, &guest.machine("Always"))?;
    let before: u64 = succeed(&agent, "get cm web -o jsonpath={.metadata.resourceVersion}")?
        .parse::<u64>()?
        + DEPENDENTS;
    // One after another, with no more between them than it takes.
    host.sh("kvmctl delete cm web --wait=false && kvmctl create -f /run/kvmlet-test/object.yaml")?;
    host.wait_for("kvmctl get vmi guest", PATIENCE)?;
    let left = "kvmctl get sa -o name 2>/dev/null | wc -l";
    host.wait_for(&format!("test $({left}) = 0"), PATIENCE)?;
    // Each change takes a version: the guest was made before as many were taken as there were dependents.
    let event =
        "{.items[?(@.involvedObject.kind==\"VirtualMachineInstance\")].metadata.resourceVersion}";
    let made = succeed(
        &agent,
        &format!(
            "get events --field-selector involvedObject.name=guest,reason=SuccessfulCreate -o 'jsonpath={event}'"
        ),
    )?;
    let made: u64 = made.parse()?;
    assert!(
        made < before + DEPENDENTS,
        "the guest was made at version {made}, and the first object was deleted after {before}"
    );
    Ok(())
}

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

/// More objects than uids are forgotten at a time.
const OTHERS: usize = 300;

#[test]
fn what_is_written_after_its_owner_has_gone_goes_too() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    agent.apply(MAP)?;
    let uid = succeed(&agent, "get cm web -o jsonpath={.metadata.uid}")?;
    succeed(&agent, "delete cm web")?;
    let owner = |uid: &str| format!("{{apiVersion: v1, kind: ConfigMap, name: web, uid: {uid}}}");
    let owned = |name: &str, owners: &str| {
        MAP.replace(
            "name: web",
            &format!("name: {name}, ownerReferences: [{owners}]"),
        )
    };
    let late = |name: &str| {
        agent.apply(&owned(name, &owner(&uid)))?;
        host.wait_for(&format!("! kvmctl get cm {name}"), PATIENCE)
    };
    late("created")?;
    // Neither others that go nor another agent change that.
    let others = (0..OTHERS).map(|number| {
        format!("apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: a{number}}}\n---\n")
    });
    put(&host, &others.collect::<String>())?;
    succeed(&agent, "create -f /run/kvmlet-test/object.yaml")?;
    succeed(&agent, "delete -f /run/kvmlet-test/object.yaml")?;
    agent.kill()?;
    agent.start()?;
    late("later")?;

    agent.apply(&MAP.replace("name: web", "name: patched"))?;
    let patch = format!("{{metadata: {{ownerReferences: [{}]}}}}", owner(&uid));
    succeed(&agent, &format!("patch cm patched -p '{patch}'"))?;
    host.wait_for("! kvmctl get cm patched", PATIENCE)?;

    // An owner that nobody knows may be elsewhere, and one that there is keeps what it owns.
    let elsewhere = owner("5d7e2a3c-0000-4000-8000-000000000000");
    agent.apply(&owned("foreign", &elsewhere))?;
    agent.apply(&owned("shared", &format!("{}, {elsewhere}", owner(&uid))))?;
    let owners = "kvmctl get cm shared -o 'jsonpath={.metadata.ownerReferences[*].uid}'";
    host.wait_for(
        &format!("test \"$({owners})\" = 5d7e2a3c-0000-4000-8000-000000000000"),
        PATIENCE,
    )?;
    succeed(&agent, "get cm foreign")?;
    Ok(())
}
