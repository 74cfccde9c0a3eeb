//! Who may do what, over the Unix socket and over TLS, through a real agent.

#![forbid(unsafe_code)]

use std::time::Duration;

use integration::agent::{Agent, CONFIG, GuestSpec, IMAGES, LOG};
use integration::authority::{Authority, DIRECTORY};
use integration::commands::{Commands, Output};
use integration::host::{self, Host};
use integration::{skip_if, tools};

const PATIENCE: Duration = Duration::from_secs(60);
const SERVER: &str = "https://localhost:9774";

/// Grants of the test. Connections are few, so that the limit can be seen.
const GRANTS: &str = r#"
[grpc]
listen = "127.0.0.1:9774"
certificate = "/run/tls/agent.crt"
key = "/run/tls/agent.key"
client_ca = "/run/tls/ca.crt"
max_connections_per_client = 4

[[grants]]
role = "operate"
namespaces = ["a"]
organizations = ["team-a"]

[[grants]]
role = "view"
namespaces = ["a", "b"]
alternative_names = ["spiffe://test/dashboard"]
users = ["1000"]

[[grants]]
role = "console"
groups = ["4321"]
"#;

struct Setup<'h> {
    host: &'h Host,
    agent: Agent<'h, Host>,
    authority: Authority<'h, Host>,
}

impl<'h> Setup<'h> {
    fn start(host: &'h Host) -> anyhow::Result<Self> {
        let agent = Agent::prepare(host)?;
        agent.add_image("/run/bin/testguest", "testguest")?;
        let authority = Authority::new(host, "ca")?;
        authority.sign("agent", "/CN=agent", "DNS:localhost")?;
        authority.sign("alice", "/O=team-a/CN=alice", "")?;
        authority.sign("dashboard", "/CN=x", "URI:spiffe://test/dashboard")?;
        authority.sign("mallory", "/O=team-b/CN=mallory", "")?;
        host.sh(&format!(
            "cat >> {CONFIG} <<'END'{GRANTS}END\nchmod 755 /run"
        ))?;
        agent.start()?;
        Ok(Self {
            host,
            agent,
            authority,
        })
    }

    /// `kvmctl` with somebody's certificate.
    fn with(&self, who: &str, arguments: &str) -> anyhow::Result<Output> {
        let options = self.authority.options(who, SERVER);
        self.agent.kvmctl(&format!("{options} {arguments}"))
    }

    /// `kvmctl` over the socket as another user with one group more.
    fn as_user(&self, uid: u32, group: u32, arguments: &str) -> anyhow::Result<Output> {
        let script = format!(
            "setpriv --reuid {uid} --regid {uid} --groups {group} env HOME=/ kvmctl {arguments}"
        );
        self.host.run_for(&["sh", "-c", &script], PATIENCE)
    }

    fn put_guest(&self, namespace: &str) -> anyhow::Result<String> {
        let file = format!("/run/{namespace}.yaml");
        let images = format!("/var/lib/kvmlet/images/{namespace}");
        self.host.sh(&format!(
            "mkdir -p {images} && cp -r {IMAGES}/testguest {images}/"
        ))?;
        let manifest = GuestSpec::testguest("web", "tests=none then=tick")
            .without_devices()
            .manifest()
            .replace(
                "  name: web",
                &format!("  name: web\n  namespace: {namespace}"),
            )
            .replace(IMAGES, &images);
        self.host.put(&file, 0o644, manifest.as_bytes())?;
        Ok(file)
    }

    /// Has the agent read its configuration again, and waits until it said `words` of it.
    fn reload(&self, words: &str) -> anyhow::Result<()> {
        // The agent reports a reload in its log alone.
        let script = format!(
            "before=$(grep -c '{words}' {LOG}); kill -HUP $(pidof kvmlet); \
             until test $(grep -c '{words}' {LOG}) -gt $before; do sleep 0.05; done"
        );
        self.host.run_for(&["sh", "-c", &script], PATIENCE)?;
        Ok(())
    }
}

#[track_caller]
fn expect(output: &Output, code: i32, words: &[&str]) {
    assert_eq!(output.code, Some(code), "{output}");
    for words in words {
        let said = output.stdout.contains(words) || output.stderr.contains(words);
        assert!(said, "{words:?} is not in {output}");
    }
}

#[test]
fn callers_see_and_do_what_is_granted_and_nothing_else() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    tools::ensure(tools::TESTS)?;
    let host = Host::enter()?;
    let setup = Setup::start(&host)?;
    let (a, b) = (setup.put_guest("a")?, setup.put_guest("b")?);
    expect(
        &setup.with("alice", &format!("apply -f {a}"))?,
        0,
        &["web created"],
    );
    let denied = setup.with("alice", &format!("apply -f {b}"))?;
    expect(
        &denied,
        1,
        &[
            "certificate CN=alice, O=team-a at 127.0.0.1",
            "namespace \"b\"",
            "needs role operate",
            "[[grants]] role = \"operate\", common_names = [\"alice\"] in",
        ],
    );
    expect(&setup.agent.kvmctl(&format!("apply -f {b}"))?, 0, &[]);

    for namespace in ["a", "b"] {
        let running = format!(
            "kvmctl wait --for=jsonpath='{{.status.phase}}'=Running vmi/web -n {namespace} --timeout 60s"
        );
        host.sh(&running)?;
    }

    lists_and_watches_show_what_their_caller_may_see(&setup, &host)?;
    roles_open_what_they_say(&setup)
}

fn lists_and_watches_show_what_their_caller_may_see(
    setup: &Setup<'_>,
    host: &Host,
) -> anyhow::Result<()> {
    let all = |output: Output| -> Vec<String> {
        let lines = output.stdout.lines();
        lines.map(|line| line.trim().to_owned()).collect()
    };
    let list = "get vmi -A -o 'jsonpath={range .items[*]}{.metadata.namespace}{\"\\n\"}{end}'";
    assert_eq!(all(setup.with("alice", list)?), ["a"]);
    assert_eq!(all(setup.with("dashboard", list)?), ["a", "b"]);
    assert_eq!(all(setup.as_user(1000, 1000, list)?), ["a", "b"]);
    assert_eq!(all(setup.agent.kvmctl(list)?), ["a", "b"]);
    let watch = "timeout 3 kvmctl";
    let options = setup.authority.options("alice", SERVER);
    let watched = host.sh(&format!("{watch} {options} get events -A -w -o name; true"))?;
    let by_root = host.sh(&format!("{watch} get events -A -w -o name; true"))?;
    assert!(watched.lines().count() > 0, "{watched}");
    assert!(
        watched.lines().count() < by_root.lines().count(),
        "{watched}\n{by_root}"
    );
    Ok(())
}

/// Whether something is there is nobody's to know who may not see it.
fn roles_open_what_they_say(setup: &Setup<'_>) -> anyhow::Result<()> {
    expect(&setup.with("dashboard", "get vmi web -n b")?, 0, &["web"]);
    for arguments in ["delete vmi web -n b", "pause vmi web -n a", "logs web -n a"] {
        let denied = setup.with("dashboard", arguments)?;
        expect(
            &denied,
            1,
            &["(Forbidden)", "may not do this", "anywhere: view)"],
        );
    }
    for name in ["web", "none"] {
        let denied = setup.with("alice", &format!("get vmi {name} -n b"))?;
        expect(&denied, 1, &["may not do this in namespace \"b\""]);
    }
    expect(
        &setup.with("mallory", "get vmi -A")?,
        1,
        &["in any namespace"],
    );
    expect(
        &setup.as_user(1999, 1999, "get vmi")?,
        1,
        &["uid 1999", "users = [\"1999\"]"],
    );
    expect(
        &setup.as_user(1999, 4321, "logs web -n b --tail-bytes 10")?,
        0,
        &[],
    );
    expect(
        &setup.as_user(1999, 4321, "pause vmi web -n b")?,
        1,
        &["needs role operate"],
    );
    expect(&setup.with("alice", "pause vmi web -n a")?, 0, &[]);
    Ok(())
}

#[test]
fn only_clients_with_certificates_of_the_authority_come_in() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    tools::ensure(tools::TESTS)?;
    let host = Host::enter()?;
    let setup = Setup::start(&host)?;
    // Somebody who says nothing is shown the door; meanwhile others are served.
    let mut silent = host.exec_in_terminal(&[
        "bash",
        "-c",
        "exec 3<>/dev/tcp/127.0.0.1/9774; cat <&3; echo closed",
    ])?;
    // The server may close before all is said, which is no reason to die.
    let plain = "trap '' PIPE; exec 3<>/dev/tcp/127.0.0.1/9774; printf 'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n' >&3; \
                 timeout 5 cat <&3 | wc -c";
    let answer = host.run_for(&["bash", "-c", plain], PATIENCE)?;
    // An alert of TLS at most.
    let bytes: usize = answer.stdout.trim().parse()?;
    assert!(bytes < 16, "{bytes} bytes without TLS");

    let other = Authority::new(&host, "other")?;
    other.sign("stranger", "/O=team-a/CN=alice", "DNS:localhost")?;
    let stranger = setup.authority.options("stranger", SERVER);
    let refused = setup.agent.kvmctl(&format!("{stranger} get vmi"))?;
    expect(
        &refused,
        3,
        &[SERVER, "does not take the certificate --cert"],
    );
    let wary = other.options("alice", SERVER);
    let refused = setup.agent.kvmctl(&format!("{wary} get vmi"))?;
    expect(
        &refused,
        3,
        &[SERVER, "not signed by the authority of --cacert"],
    );
    let misnamed = setup.authority.options("alice", "https://127.0.0.1:9774");
    let refused = setup.agent.kvmctl(&format!("{misnamed} get vmi"))?;
    expect(&refused, 3, &["for another name"]);
    let nowhere = setup.authority.options("alice", "https://localhost:9775");
    let refused = setup.agent.kvmctl(&format!("{nowhere} get vmi"))?;
    expect(&refused, 3, &["nobody listens there"]);

    // Environment and file say the same as options.
    host.sh(&format!(
        "printf 'server = \"{SERVER}\"\\ncert = \"{DIRECTORY}/alice.crt\"\\nkey = \"{DIRECTORY}/alice.key\"\\n\
         cacert = \"{DIRECTORY}/ca.crt\"\\nnamespace = \"a\"\\n' > /run/kvmctl.toml"
    ))?;
    expect(
        &setup.agent.kvmctl("--config /run/kvmctl.toml get vmi")?,
        0,
        &[],
    );
    let by_environment =
        format!("KVMLET_SERVER={SERVER} kvmctl --config /run/kvmctl.toml get vmi -n b");
    let denied = host.run_for(&["sh", "-c", &by_environment], PATIENCE)?;
    expect(&denied, 1, &["namespace \"b\""]);

    silent.read_until("closed", PATIENCE)?;
    Ok(())
}

#[test]
fn certificates_and_grants_are_read_again_and_connections_are_limited() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    tools::ensure(tools::TESTS)?;
    let host = Host::enter()?;
    let setup = Setup::start(&host)?;
    // A key that does not belong to the certificate changes nothing.
    host.sh(&format!("cp {DIRECTORY}/agent.key /run/agent.key && cp {DIRECTORY}/mallory.key {DIRECTORY}/agent.key"))?;
    setup.reload("the configuration stays as it was")?;
    expect(&setup.with("alice", "get vmi -A")?, 0, &[]);
    host.sh(&format!("cp /run/agent.key {DIRECTORY}/agent.key"))?;

    // Another authority for both sides, and another grant.
    let next = Authority::new(&host, "next")?;
    next.sign("agent", "/CN=agent", "DNS:localhost")?;
    next.sign("bob", "/O=team-a/CN=bob", "")?;
    host.sh(&format!(
        "sed -i 's/ca.crt/next.crt/; s/operate/view/' {CONFIG}"
    ))?;
    setup.reload("was read again")?;
    let bob = next.options("bob", SERVER);
    expect(&setup.agent.kvmctl(&format!("{bob} get vmi -A"))?, 0, &[]);
    let file = setup.put_guest("a")?;
    let denied = setup.agent.kvmctl(&format!("{bob} apply -f {file}"))?;
    expect(&denied, 1, &["needs role operate", "anywhere: view)"]);
    let past = setup.with("alice", "get vmi -A")?;
    expect(&past, 3, &[]);

    // Four connections of one certificate, and not a fifth; others are not in the way.
    next.sign("carol", "/O=team-a/CN=carol", "")?;
    let mut watches = Vec::new();
    for _ in 0..4 {
        // A connection that just ended may still count, and keep one of the four out for a moment.
        let script = format!("until kvmctl {bob} get vmi -A -w; do sleep 0.1; done; echo ended");
        watches.push(host.exec_in_terminal(&["sh", "-c", &script])?);
    }
    // The agent counts a connection some time after its client has connected.
    let full = format!("until ! kvmctl {bob} get vmi -A; do sleep 0.1; done");
    host.run_for(&["sh", "-c", &full], PATIENCE)?;
    let carol = next.options("carol", SERVER);
    expect(&setup.agent.kvmctl(&format!("{carol} get vmi -A"))?, 0, &[]);
    for mut watch in watches {
        watch.kill()?;
    }
    host.wait_for(&format!("kvmctl {bob} get vmi -A"), PATIENCE)?;
    Ok(())
}

#[test]
fn who_loses_a_grant_or_a_certificate_loses_what_is_open() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    tools::ensure(tools::TESTS)?;
    let host = Host::enter()?;
    let setup = Setup::start(&host)?;
    let watch = |who: &str| {
        let options = setup.authority.options(who, SERVER);
        let script = format!("kvmctl {options} get vmi -n a -w -o name; echo ended $?");
        host.exec_in_terminal(&["sh", "-c", &script])
    };
    let guest = setup.put_guest("a")?;
    expect(&setup.agent.kvmctl(&format!("apply -f {guest}"))?, 0, &[]);
    let mut alice = watch("alice")?;
    let mut dashboard = watch("dashboard")?;
    for session in [&mut alice, &mut dashboard] {
        session.read_until("web", PATIENCE)?;
    }

    // Her grant: the stream ends, and the connection of others does not.
    host.sh(&format!("sed -i 's/\"team-a\"/\"team-z\"/' {CONFIG}"))?;
    setup.reload("was read again")?;
    alice.read_until("may not do this in any namespace", PATIENCE)?;
    alice.read_until("ended 1", PATIENCE)?;
    host.sh(&format!("sed -i 's/\"team-z\"/\"team-a\"/' {CONFIG}"))?;

    // A list of withdrawn certificates that names nobody, and then one that names her.
    setup.authority.withdraw(&[])?;
    host.sh(&format!(
        "sed -i 's|^client_ca = .*|&\\nclient_crl = \"{DIRECTORY}/ca.crl\"|' {CONFIG}"
    ))?;
    setup.reload("was read again")?;
    let options = setup.authority.options("alice", SERVER);
    let script = format!(
        "kvmctl {options} wait --for=jsonpath='{{.status.phase}}'=Succeeded vmi/web -n a --timeout 300s"
    );
    let mut alice = host.exec_in_terminal(&["sh", "-c", &script])?;
    host.wait_for(
        // The dashboard's and hers.
        "test $(ss -Htn state established '( sport = :9774 )' | wc -l) -ge 2",
        PATIENCE,
    )?;
    setup.authority.withdraw(&["alice"])?;
    // Nobody reloads anything, and who waits says that its stream has ended.
    alice.read_until("the agent went away", PATIENCE)?;
    alice.kill()?;
    host.sh(&format!(
        "grep 'CN=alice, O=team-a at .* is disconnected: .*Revoked' {LOG}"
    ))?;
    let refused = setup.with("alice", "get vmi -n a")?;
    expect(&refused, 3, &["does not take the certificate --cert"]);
    expect(&setup.with("dashboard", "get vmi -n a")?, 0, &["web"]);
    assert!(
        !dashboard.printed().contains("ended"),
        "{}",
        dashboard.printed()
    );

    // A list that cannot be read changes nothing.
    host.sh(&format!("echo nonsense > {DIRECTORY}/ca.crl"))?;
    host.wait_for(
        &format!("grep -q 'what was read before holds' {LOG}"),
        PATIENCE,
    )?;
    expect(&setup.with("alice", "get vmi -n a")?, 3, &[]);
    expect(&setup.with("dashboard", "get vmi -n a")?, 0, &["web"]);
    Ok(())
}

#[test]
fn a_certificate_that_expired_lets_nobody_in_and_ends_what_is_open() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    tools::ensure(tools::TESTS)?;
    let host = Host::enter()?;
    let setup = Setup::start(&host)?;
    let past = ("-2 days", "-1 day");
    setup
        .authority
        .sign_between("late", "/O=team-a/CN=late", past)?;
    let refused = setup.with("late", "get vmi -n a")?;
    expect(&refused, 3, &["does not take the certificate --cert"]);

    let soon = ("-1 day", "+20 seconds");
    setup
        .authority
        .sign_between("brief", "/O=team-a/CN=brief", soon)?;
    let watch = |who: &str| {
        let options = setup.authority.options(who, SERVER);
        let script = format!("kvmctl {options} get vmi -n a -w -o name; echo ended $?");
        host.exec_in_terminal(&["sh", "-c", &script])
    };
    let guest = setup.put_guest("a")?;
    expect(&setup.agent.kvmctl(&format!("apply -f {guest}"))?, 0, &[]);
    let mut brief = watch("brief")?;
    let mut dashboard = watch("dashboard")?;
    for session in [&mut brief, &mut dashboard] {
        session.read_until("web", PATIENCE)?;
    }
    // Nobody reloads or withdraws anything: time passes.
    let ended = format!("grep 'CN=brief, O=team-a at .* is disconnected: .*[Ee]xpired' {LOG}");
    host.wait_for(&ended, PATIENCE)?;
    brief.kill()?;
    let refused = setup.with("brief", "get vmi -n a")?;
    expect(&refused, 3, &["does not take the certificate --cert"]);
    expect(&setup.with("dashboard", "get vmi -n a")?, 0, &["web"]);
    let printed = dashboard.printed();
    assert!(!printed.contains("ended"), "{printed}");
    Ok(())
}
