//! Sets of guests on this machine's own KVM: `kvmctl apply`, `scale` and `delete`, with an agent that is killed in the
//! midst of it.

#![forbid(unsafe_code)]

use std::time::Duration;

use integration::agent::Agent;
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::skip_if;
use integration::soak::sets::{Campaign, manifest as set, scaled};

const PATIENCE: Duration = Duration::from_secs(60);

fn started(host: &Host) -> anyhow::Result<Agent<'_, Host>> {
    let agent = Agent::prepare(host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    Ok(agent)
}

/// Waits until the set reports so many guests, all ready, and there are no others.
fn settle(host: &Host, agent: &Agent<'_, Host>, replicas: u32) -> anyhow::Result<()> {
    let status = format!(
        "test \"$(kvmctl get vmirs web -o jsonpath='{{.status.replicas}} {{.status.readyReplicas}}')\" = '{replicas} {replicas}' && \
         test $(kvmctl get vmi -o name | wc -l) = {replicas} && test $(pidof kvmlet-vmm | wc -w) = {replicas}"
    );
    let settled = host.wait_for(&status, PATIENCE);
    let printed = || {
        let shown =
            agent.kvmctl("get vmirs,vmi; kvmctl get vmirs; kvmctl get vmi; kvmctl get events");
        format!("{shown:?}\n{}", agent.log())
    };
    anyhow::ensure!(settled.is_ok(), "{settled:?}\n{}", printed());
    Ok(())
}

fn succeed(agent: &Agent<'_, Host>, arguments: &str) -> anyhow::Result<String> {
    let output = agent.kvmctl(arguments)?;
    anyhow::ensure!(
        output.code == Some(0),
        "kvmctl {arguments}: {output}\n{}",
        agent.log()
    );
    Ok(output.stdout)
}

fn names(agent: &Agent<'_, Host>) -> anyhow::Result<String> {
    succeed(
        agent,
        "get vmi --no-headers -o custom-columns=N:.metadata.name",
    )
}

#[test]
fn a_set_has_as_many_guests_as_wanted_whenever_the_agent_is_killed() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    agent.apply(&set("web", 3)?)?;
    agent.kill()?;
    agent.start()?;
    settle(&host, &agent, 3)?;
    let table = succeed(&agent, "get vmirs")?;
    let words: Vec<&str> = table.split_whitespace().collect();
    assert_eq!(
        words.get(..5),
        Some(&["NAME", "DESIRED", "CURRENT", "READY", "AGE"][..])
    );
    assert_eq!(words.get(5..9), Some(&["web", "3", "3", "3"][..]));

    // Guests go on beside the death of their agent, and are none too many after it.
    for (replicas, pause) in [(6, "0"), (2, "0.05"), (5, "0.2"), (1, "0")] {
        let scaled = succeed(&agent, &format!("scale vmirs web --replicas {replicas}"))?;
        assert_eq!(
            scaled,
            "virtualmachineinstancereplicaset.kubevirt.io/web scaled\n"
        );
        host.sh(&format!("sleep {pause}"))?;
        agent.kill()?;
        agent.start()?;
        settle(&host, &agent, replicas)?;
    }

    // A guest that somebody deletes, and one that ends, are replaced.
    let before = names(&agent)?;
    succeed(
        &agent,
        &format!("delete vmi {} --grace-period 0", before.trim()),
    )?;
    settle(&host, &agent, 1)?;
    // An agent that is killed may take its events with it; this one was not.
    host.wait_for(
        "kvmctl describe vmirs web | grep SuccessfulCreate",
        PATIENCE,
    )?;
    host.sh("kill -9 $(pidof kvmlet-vmm)")?;
    settle(&host, &agent, 1)?;

    // An apply that says nothing of what somebody scaled changes nothing; one that does, does.
    agent.apply(&set("web", 3)?)?;
    assert!(succeed(&agent, "get vmirs web -o yaml")?.contains("generation"));
    agent.apply(&set("web", 2)?)?;
    settle(&host, &agent, 2)?;
    succeed(&agent, "scale vmirs/web --replicas 0")?;
    settle(&host, &agent, 0)?;
    agent.kill()?;
    let checked = host.sh("kvmlet check-store --config /var/lib/kvmlet/kvmlet.toml")?;
    assert!(checked.contains(": sound"), "{checked}");
    Ok(())
}

#[test]
fn guests_of_a_deleted_set_go_with_it_or_stay_and_are_adopted() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    agent.apply(&set("web", 2)?)?;
    settle(&host, &agent, 2)?;
    let before = names(&agent)?;
    succeed(&agent, "delete vmirs web --cascade=orphan")?;
    let owners = "kvmctl get vmi -o 'jsonpath={.items[*].metadata.ownerReferences}'";
    host.wait_for(&format!("test -z \"$({owners})\""), PATIENCE)?;
    assert_eq!(names(&agent)?, before);
    agent.apply(&set("web", 2)?)?;
    settle(&host, &agent, 2)?;
    assert_eq!(names(&agent)?, before);

    // What a set leaves behind is collected by the agent that comes after one that was killed.
    succeed(&agent, "delete vmirs web")?;
    agent.kill()?;
    agent.start()?;
    host.wait_for(
        "test -z \"$(kvmctl get vmi -o name)\" && ! pidof kvmlet-vmm",
        PATIENCE,
    )?;
    let absent = agent.kvmctl("get vmirs web")?;
    assert!(absent.stderr.contains("NotFound"), "{absent}");
    Ok(())
}

#[test]
fn a_set_that_no_guest_can_be_made_of_is_refused_with_the_field() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let wrong = set("web", 1)?
        .replace("set: web\n  template", "set: other\n  template")
        .replace(
            "guest: 16Mi",
            "guest: 16Mi\n          hugepages: {pageSize: 3Mi}",
        );
    host.put("/run/set.yaml", 0o644, wrong.as_bytes())?;
    let refused = agent.kvmctl("apply -f /run/set.yaml")?;
    assert_eq!(refused.code, Some(1), "{refused}");
    for wanted in [
        "* spec.selector: Invalid value: selector does not match labels.",
        "* spec.template.spec.domain.memory.hugepages.pageSize: ",
    ] {
        assert!(refused.stderr.contains(wanted), "{refused}");
    }
    Ok(())
}

#[test]
fn sets_are_scaled_from_nothing_and_back_while_the_agent_is_killed_at_each_step()
-> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let campaign = Campaign {
        seed: 5,
        sets: 3,
        replicas: 3,
    };
    let tally = scaled(&host, &agent, campaign, &mut |_| {})?;
    anyhow::ensure!(tally.transitions == 6 && tally.quiet == 2, "{tally:?}");
    // An agent that was killed may do a thing again, and not much more often than that.
    let most = u64::from(campaign.sets * campaign.replicas) * 40;
    anyhow::ensure!(
        tally.writes_up < most && tally.writes_down < most,
        "{tally:?}"
    );
    Ok(())
}
