//! Clients that go away in the midst of a write, at any moment of it: what they wrote is there as a whole or not at all, what
//! was confirmed to them is there, and what follows from a write does not wait for anybody to listen.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use integration::agent::{Agent, GuestSpec};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::skip_if;
use proto_node::node::object_service_client::ObjectServiceClient;
use proto_node::node::{CreateObjectRequest, ObjectName, PatchObjectRequest};
use proto_node::vmi::VirtualMachineInstance;
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};

use super::{PATIENCE, started, succeed};

/// Calls of each kind; each is given up a little later than the one before.
const CALLS: u32 = 400;

/// Calls that nobody gives up, to know how long one takes.
const WHOLE: u32 = 21;

/// After this the agent has read what clients sent before they left.
const SETTLED: Duration = Duration::from_secs(1);

/// Guests that are asked for.
const GUESTS: u32 = 24;

/// Clients that each make one call.
struct Clients {
    endpoint: Endpoint,
}

impl Clients {
    fn of(host: &Host) -> anyhow::Result<Self> {
        let socket = host.path("/run/kvmlet/kvmlet.sock");
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))?;
        Ok(Self { endpoint })
    }

    async fn connect(&self) -> anyhow::Result<ObjectServiceClient<Channel>> {
        let channel = self.endpoint.connect().await.context("the agent")?;
        Ok(ObjectServiceClient::new(channel))
    }

    /// Makes calls that are given up at moments from their begin until after most answers, and returns which were
    /// answered. A client that gives up closes its connection, or every other time the call alone.
    async fn call<F>(
        &self,
        count: u32,
        mut make: impl FnMut(ObjectServiceClient<Channel>, u32) -> F,
    ) -> anyhow::Result<Vec<bool>>
    where
        F: Future<Output = anyhow::Result<()>>,
    {
        let mut took = Vec::new();
        for number in 0..WHOLE {
            let client = self.connect().await?;
            let begun = Instant::now();
            make(client, number).await?;
            took.push(begun.elapsed());
        }
        took.sort();
        let usual = took[took.len() / 2];
        let mut answered = vec![true; took.len()];
        let shared = self.connect().await?;
        for number in WHOLE..WHOLE + count {
            let client = if number % 2 == 0 {
                shared.clone()
            } else {
                self.connect().await?
            };
            let patience = usual * 3 / 2 * (number - WHOLE) / count;
            let call = make(client, number);
            tokio::select! {
                biased;
                answer = call => {
                    answer?;
                    answered.push(true);
                }
                () = pass(patience) => answered.push(false),
            }
        }
        // What is asked for last is written last, but requests of clients that have gone may still be read.
        tokio::time::sleep(SETTLED).await;
        let number = WHOLE + count;
        make(self.connect().await?, number).await?;
        answered.push(true);
        Ok(answered)
    }
}

/// Waits, as exactly as no timer does.
async fn pass(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        tokio::task::yield_now().await;
    }
}

fn run<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(work)
}

async fn create(mut client: ObjectServiceClient<Channel>, object: Value) -> anyhow::Result<()> {
    let request = CreateObjectRequest {
        object: object.to_string().into_bytes(),
        ..CreateObjectRequest::default()
    };
    client.create_object(request).await?;
    Ok(())
}

fn map(number: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("c{number}"), "labels": {"of": "clients"}},
        "data": data(number),
    })
}

/// Two values that are never apart.
fn data(number: u32) -> Value {
    json!({"a": number.to_string(), "b": number.to_string()})
}

/// The objects of a kind by name.
fn listed(agent: &Agent<'_, Host>, what: &str) -> anyhow::Result<BTreeMap<String, Value>> {
    let list = succeed(agent, &format!("get {what} -o json"))?;
    let mut list: Value = serde_json::from_str(&list)?;
    let items = list["items"].as_array_mut().context("a list")?;
    let items = items.drain(..);
    Ok(items
        .map(|item| {
            let name = item["metadata"]["name"].as_str().unwrap_or_default();
            (name.to_owned(), item)
        })
        .collect())
}

/// Everything that was answered is there; and of what was given up, something is, so that this test shows anything.
fn check_created(
    there: &BTreeMap<String, Value>,
    answered: &[bool],
    name: impl Fn(u32) -> String,
) -> anyhow::Result<()> {
    let (mut stored, mut given_up) = (0, 0);
    for (number, is_answered) in (0..).zip(answered) {
        let name = name(number);
        let is_there = there.contains_key(&name);
        ensure!(
            is_there || !is_answered,
            "{name} was answered and is not there"
        );
        if !is_answered {
            given_up += 1;
            stored += u32::from(is_there);
        }
    }
    println!("{given_up} calls were given up, of which {stored} were written all the same");
    ensure!(stored > 0, "no write was under way when its client left");
    Ok(())
}

#[test]
fn an_object_whose_creator_leaves_is_there_as_a_whole_or_not_at_all() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let clients = Clients::of(&host)?;
    let answered = run(clients.call(CALLS, |client, number| create(client, map(number))))?;
    let there = listed(&agent, "cm -l of=clients")?;
    check_created(&there, &answered, |number| format!("c{number}"))?;
    for (name, object) in &there {
        let number: u32 = name.trim_start_matches('c').parse()?;
        assert_eq!(object["data"], data(number), "{name}");
        assert_eq!(object["metadata"]["labels"], json!({"of": "clients"}));
    }
    // What is there cannot be made again, and all else can: no call has left anything behind.
    let again = run(async {
        let mut made = Vec::new();
        for number in 0..WHOLE + CALLS {
            let client = clients.connect().await?;
            if create(client, map(number)).await.is_ok() {
                made.push(format!("c{number}"));
            }
        }
        Ok(made)
    })?;
    let all = (0..WHOLE + CALLS).map(|number| format!("c{number}"));
    let absent: Vec<String> = all.filter(|name| !there.contains_key(name)).collect();
    assert_eq!(again, absent);

    let before = listed(&agent, "cm -l of=clients")?;
    agent.kill()?;
    let checked = host.sh("kvmlet check-store --config /var/lib/kvmlet/kvmlet.toml")?;
    assert!(checked.contains(": sound"), "{checked}");
    agent.start()?;
    assert_eq!(listed(&agent, "cm -l of=clients")?, before);
    Ok(())
}

#[test]
fn a_patch_whose_client_leaves_changes_everything_it_names_or_nothing() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let clients = Clients::of(&host)?;
    // One object for each patch, so that none hides what another one did.
    run(async {
        for number in 0..=WHOLE + CALLS {
            let mut object = map(number);
            object["data"] = json!({"a": "none", "b": "none"});
            create(clients.connect().await?, object).await?;
        }
        Ok(())
    })?;
    let patch = |mut client: ObjectServiceClient<Channel>, number: u32| async move {
        let request = PatchObjectRequest {
            name: Some(ObjectName {
                kind: String::from("ConfigMap"),
                namespace: String::from("default"),
                name: format!("c{number}"),
            }),
            merge_patch: json!({"data": data(number)}).to_string().into_bytes(),
            ..PatchObjectRequest::default()
        };
        client.patch_object(request).await?;
        Ok(())
    };
    let answered = run(clients.call(CALLS, patch))?;
    let mut there = listed(&agent, "cm -l of=clients")?;
    there.retain(|_, object| object["data"]["a"] != "none" || object["data"]["b"] != "none");
    check_created(&there, &answered, |number| format!("c{number}"))?;
    for (name, object) in there {
        let number: u32 = name.trim_start_matches('c').parse()?;
        assert_eq!(object["data"], data(number), "{name}");
    }
    Ok(())
}

#[test]
fn a_guest_whose_creator_leaves_runs_or_is_not_there() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    let spec = GuestSpec::testguest("NAME", "tests=none then=idle").without_devices();
    let guest: VirtualMachineInstance = spec.manifest().parse()?;
    let guest = proto_node::to_json(&guest);
    let clients = Clients::of(&host)?;
    let make = |client: ObjectServiceClient<Channel>, number: u32| {
        let guest = json!({
            "apiVersion": guest["apiVersion"], "kind": guest["kind"],
            "metadata": {"name": format!("g{number}")}, "spec": guest["spec"],
        });
        create(client, guest)
    };
    let answered = run(clients.call(GUESTS, make))?;
    let there = listed(&agent, "vmi")?;
    check_created(&there, &answered, |number| format!("g{number}"))?;
    let count = there.len();
    host.wait_for(
        &format!(
            "test $(kvmctl get vmi --no-headers | grep -c Running) = {count} && test $(pidof kvmlet-vmm | wc -w) = {count}"
        ),
        PATIENCE * 3,
    )?;
    let names: Vec<&str> = there.keys().map(String::as_str).collect();
    succeed(
        &agent,
        &format!("delete vmi {} --grace-period 0", names.join(" ")),
    )?;
    host.wait_for("! pidof kvmlet-vmm", PATIENCE)?;
    Ok(())
}
