//! Several types of objects at once, and waiting for objects that are not named.

use integration::agent::GuestSpec;
use integration::host::{self, Host};
use integration::skip_if;

use super::{MAP, fail, put, started, succeed};

/// The first cell of each line.
fn first_cells(table: &str) -> Vec<&str> {
    let lines = table.lines();
    let cells = lines.map(|line| line.split_whitespace().next().unwrap_or_default());
    cells.collect()
}

#[test]
fn several_types_are_shown_as_kubectl_shows_them() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    let nothing = agent.kvmctl("get vmi,vm")?;
    assert_eq!(nothing.stdout, "", "{nothing}");
    assert_eq!(nothing.stderr, "No resources found in default namespace.\n");
    let guest = GuestSpec::testguest("web", "tests=none then=idle").without_devices();
    let machine = guest.machine("Halted").replace("name: web", "name: db");
    put(
        &host,
        &format!("{}---\n{machine}---\n{MAP}", guest.manifest()),
    )?;
    succeed(&agent, "apply -f /run/kvmlet-test/object.yaml")?;
    let shown = succeed(&agent, "get vmi,vm,cm")?;
    assert_eq!(
        first_cells(&shown),
        [
            "NAME",
            "virtualmachineinstance.kubevirt.io/web",
            "",
            "NAME",
            "virtualmachine.kubevirt.io/db",
            "",
            "NAME",
            "configmap/web"
        ],
        "{shown}"
    );
    let names = succeed(&agent, "get all -o name")?;
    let mut names: Vec<&str> = names.lines().collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "virtualmachine.kubevirt.io/db",
            "virtualmachineinstance.kubevirt.io/web"
        ]
    );
    let all = succeed(&agent, "get all --no-headers")?;
    assert_eq!(first_cells(&all).len(), 3, "{all}");
    let list = succeed(&agent, "get vmi,cm -o jsonpath='{.kind} {.items[*].kind}'")?;
    assert_eq!(list, "List VirtualMachineInstance ConfigMap");
    let named = agent.kvmctl("get vmi,vm web --no-headers")?;
    assert_eq!(named.code, Some(1), "{named}");
    assert_eq!(
        first_cells(&named.stdout),
        ["virtualmachineinstance.kubevirt.io/web"]
    );
    assert!(named.stderr.contains("NotFound"), "{named}");
    let refused = fail(&agent, "get vmi,pods")?;
    let words = "error: the server doesn't have a resource type \"pods\"\n";
    assert_eq!(refused, words);
    Ok(())
}

#[test]
fn objects_are_waited_for_by_labels_and_all_of_them() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    for name in ["one", "two", "three"] {
        let guest = GuestSpec::testguest(name, "tests=none then=idle").without_devices();
        let app = if name == "three" { "other" } else { "web" };
        let labels = format!("  name: {name}\n  labels: {{app: {app}}}\n");
        agent.apply(
            &guest
                .manifest()
                .replace(&format!("  name: {name}\n"), &labels),
        )?;
    }
    agent.apply(MAP)?;
    succeed(&agent, "label cm web app=web")?;
    let running = "wait --timeout 60s --for=jsonpath='{.status.phase}'=Running";
    let met = |names: &[&str]| -> String {
        let line = |name| format!("virtualmachineinstance.kubevirt.io/{name} condition met\n");
        names.iter().map(line).collect()
    };
    assert_eq!(
        succeed(&agent, &format!("{running} vmi -l app=web"))?,
        met(&["one", "two"])
    );
    assert_eq!(
        succeed(&agent, &format!("{running} vmi --all"))?,
        met(&["one", "three", "two"])
    );
    assert_eq!(
        succeed(
            &agent,
            "wait --for=jsonpath='{.data.mode}'=slow cm -l app=web"
        )?,
        "configmap/web condition met\n"
    );
    let refused = fail(&agent, &format!("{running} vmi -l app=none"))?;
    assert_eq!(refused, "error: no matching resources found\n");
    let both = agent.kvmctl(&format!("{running} vmi/one --all"))?;
    assert_eq!(both.code, Some(2), "{both}");
    assert_eq!(succeed(&agent, "wait --for=delete vmi -l app=none")?, "");
    Ok(())
}
