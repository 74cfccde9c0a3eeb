//! Registries as people run them: with TLS of a private authority and passwords, behind a mirror, and breaking off.

use anyhow::{Context, ensure};
use integration::agent::{Agent, CONFIG, IMAGES};
use integration::authority::{Authority, DIRECTORY};
use integration::commands::Commands;
use integration::host::Host;
use integration::registry::{self, PASSWORD};
use integration::{skip_if, tools};

use super::layers::{STORE, leave_free, small_store};
use super::{PATIENCE, guest, missing, passes, prepared, start_registry, wait_for_message};

/// The registry with TLS and passwords.
const SECURE: &str = "localhost:5443";

/// Hands requests on to the registry, with TLS, and with the password of a mirror alone. It ends in the middle of a blob, or
/// changes its last byte, or waits in the middle of it, as long as a file of that name is there, and notes which ranges it was asked for.
const BREAKING: &str = r#"
import base64, http.client, http.server, os, ssl, time
PASS = "Basic " + base64.b64encode(b"alice:open sesame").decode()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_GET(self):
        is_blob = "/blobs/" in self.path
        if self.headers.get("Authorization") != PASS:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="mirror"')
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if is_blob:
            with open("/run/ranges", "a") as log: log.write(self.headers.get("Range", "none") + "\n")
        upstream = http.client.HTTPConnection("127.0.0.1", 5000)
        headers = {k: v for k, v in self.headers.items() if k.title() in ("Range", "Accept")}
        upstream.request("GET", self.path, headers=headers)
        answer = upstream.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        for k, v in answer.getheaders():
            if k.lower() not in ("connection", "transfer-encoding"): self.send_header(k, v)
        self.send_header("Connection", "close")
        self.end_headers()
        if is_blob and os.path.exists("/run/break"):
            self.wfile.write(body[:len(body) // 2]); self.wfile.flush()
            os._exit(0)
        if is_blob and os.path.exists("/run/corrupt"): body = body[:-1] + b"?"
        if is_blob and os.path.exists("/run/stall"):
            self.wfile.write(body[:len(body) // 2]); self.wfile.flush()
            # The test ends the stall by removing the file, which signals nothing to this process.
            while os.path.exists("/run/stall"): time.sleep(0.05)
            body = body[len(body) // 2:]
        self.wfile.write(body)
        self.close_connection = True
server = http.server.ThreadingHTTPServer(("127.0.0.1", 5001), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/run/tls/mirror.crt", "/run/tls/mirror.key")
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
"#;

fn secret(namespace: &str, password: &str) -> String {
    registry::pull_secret(SECURE, namespace, password)
}

/// A guest of a namespace, with the pull secret or without.
fn of(
    host: &Host,
    namespace: &str,
    name: &str,
    image: &str,
    has_secret: bool,
) -> anyhow::Result<String> {
    let images = format!("/var/lib/kvmlet/images/{namespace}");
    host.sh(&format!(
        "mkdir -p {images} && cp -rn {IMAGES}/testguest {images}/"
    ))?;
    let suffix = if has_secret {
        ", imagePullSecret: registry"
    } else {
        ""
    };
    Ok(guest(name, image)
        .replace(
            &format!("  name: {name}\n"),
            &format!("  name: {name}\n  namespace: {namespace}\n"),
        )
        .replace(IMAGES, &images)
        .replace("\"}\n", &format!("\"{suffix}}}\n")))
}

fn start_secure(host: &Host) -> anyhow::Result<()> {
    let authority = Authority::new(host, "ca")?;
    authority.sign("registry", "/CN=registry", "DNS:localhost")?;
    registry::start(host, SECURE, "/run/secure", registry::Access::ReadWrite)?;
    host.wait_for("skopeo copy --quiet --insecure-policy --dest-tls-verify=false --dest-creds 'alice:open sesame' oci:/run/layout docker://localhost:5443/private/disk:1", PATIENCE)
        .map(drop)
}

#[test]
fn a_private_image_is_for_those_whose_secret_the_registry_takes() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    let host = Host::enter()?;
    let agent = prepared(&host)?;
    let settings = format!("\n[registries.\"{SECURE}\"]\nca = \"{DIRECTORY}/ca.crt\"\n");
    host.sh(&format!("printf '%s' '{settings}' >>{CONFIG}"))?;
    start_secure(&host)?;
    agent.start()?;
    let image = format!("{SECURE}/private/disk:1");
    agent.apply(&secret("default", "wrong"))?;
    agent.apply(&of(&host, "default", "web", &image, true)?)?;
    wait_for_message(
        &host,
        "default",
        "web",
        &[
            "ErrImagePull",
            "the registry does not take what the imagePullSecret says",
        ],
    )
    .with_context(|| agent.log())?;
    let phase = agent.value("web", ".status.phase")?;
    ensure!(phase != "Running", "{phase}");
    // Another password is another attempt: nobody has to wait, or to do anything else.
    agent.apply(&secret("default", "open sesame"))?;
    passes(&agent, "web")?;

    // The disk is there, and yet not for everybody.
    agent.apply(&of(&host, "other", "spy", &image, false)?)?;
    wait_for_message(&host, "other", "spy", &["ErrImagePull", "imagePullSecret"]).or_else(
        |_| {
            wait_for_message(
                &host,
                "other",
                "spy",
                &["ImagePullBackOff", "imagePullSecret"],
            )
        },
    )?;
    agent.apply(&secret("other", "open sesame"))?;
    agent.apply(&of(&host, "other", "friend", &image, true)?)?;
    host.wait_for(
        "kvmctl -n other get vmi friend -o json | grep Running",
        PATIENCE,
    )?;
    // Who knows the manifest and has no layer of it has no image.
    host.sh(
        "cp -r /run/layout /run/hollow && cd /run/hollow/blobs/sha256 && find . -type f -size +64k -delete",
    )?;
    agent.add_image("/run/hollow/.", "hollow")?;
    agent.apply(&guest("thief", &format!("oci:{IMAGES}/hollow")))?;
    wait_for_message(&host, "default", "thief", &["ErrImagePull"])?;
    try_commands(&host, &agent)
}

/// `kvmctl image` shows, pulls and removes.
fn try_commands(host: &Host, agent: &Agent<'_, Host>) -> anyhow::Result<()> {
    let image = format!("{SECURE}/private/disk:1");
    let listed = agent.kvmctl("image ls")?;
    let words = [image.as_str(), "16 MiB", "yes"];
    ensure!(
        words.iter().all(|word| listed.stdout.contains(word)),
        "{listed}"
    );
    let digest = agent.kvmctl("image ls -o name")?.stdout;
    let digest = digest.trim();
    let pulled = agent.kvmctl(&format!("image pull {image} --pull-secret registry"))?;
    ensure!(pulled.stdout == format!("{image} {digest}\n"), "{pulled}");
    let denied = agent.kvmctl(&format!("image pull {image} --pull-policy Always"))?;
    ensure!(
        denied.code == Some(1) && denied.stderr.contains("imagePullSecret"),
        "{denied}"
    );
    let used = agent.kvmctl("image df")?;
    let has = |words: &[&str]| words.iter().all(|word| used.stdout.contains(word));
    ensure!(
        has(&[
            "disks",
            "layers",
            "/var/lib/kvmlet/host/images",
            "from 85 %"
        ]),
        "{used}"
    );
    let refused = agent.kvmctl(&format!("image rm {image}"))?;
    ensure!(
        refused.code == Some(1) && refused.stderr.contains("in use by a guest"),
        "{refused}"
    );
    let kept = agent.kvmctl("image prune")?;
    ensure!(
        kept.code == Some(0) && !kept.stdout.contains(digest),
        "{kept}"
    );
    let deleted = agent.kvmctl("delete vmi web thief --grace-period 0 && kvmctl -n other delete vmi spy friend --grace-period 0")?;
    ensure!(deleted.code == Some(0), "{deleted}");
    host.wait_for("kvmctl image ls | grep -w no", PATIENCE)?;
    let dry = agent.kvmctl("image prune --dry-run")?;
    ensure!(
        dry.stdout.contains(digest) && dry.stdout.contains("would be freed"),
        "{dry}"
    );
    let short: String = digest.chars().skip("sha256:".len()).take(12).collect();
    let removed = agent.kvmctl(&format!("image rm {short}"))?;
    ensure!(removed.stdout == format!("{digest} removed\n"), "{removed}");
    let none = agent.kvmctl(&format!("image rm {short}"))?;
    ensure!(
        none.code == Some(1) && none.stderr.contains("is kept"),
        "{none}"
    );
    Ok(())
}

/// A guest of an image that takes the pull secret.
pub(crate) fn private(name: &str, image: &str) -> String {
    guest(name, image).replace(image, &format!("{image}\", imagePullSecret: \"registry"))
}

#[test]
fn a_pull_goes_on_where_its_registry_broke_off_and_mirrors_are_asked_first() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    tools::ensure(tools::EXAMPLES)?;
    let host = Host::enter()?;
    let agent = prepared(&host)?;
    let settings = format!(
        "\n[registries.\"upstream.example\"]\nmirrors = [\"127.0.0.1:5001/mirror\"]\n\
         [registries.\"127.0.0.1:5001\"]\nca = \"{DIRECTORY}/ca.crt\"\n\
         [images]\nreserve_bytes = 0\n"
    );
    let authority = Authority::new(&host, "ca")?;
    authority.sign("mirror", "/CN=mirror", "IP:127.0.0.1")?;
    host.sh(&format!("printf '%s' '{settings}' >>{CONFIG}"))?;
    host.put("/run/breaking.py", 0o644, BREAKING.as_bytes())?;
    start_registry(&host)?;
    host.sh(
        "skopeo copy --quiet --insecure-policy --dest-tls-verify=false oci:/run/layout docker://127.0.0.1:5000/mirror/vm/disk:1",
    )?;
    let start = "setsid python3 /run/breaking.py </dev/null >/run/breaking.log 2>&1 &";
    host.sh(&format!("touch /run/break && {start}"))?;
    host.wait_for(
        "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 5001))'",
        PATIENCE,
    )?;
    agent.start()?;
    small_store(&host)?;
    // The mirror does not take what is for the registry.
    agent.apply(&registry::pull_secret(
        "upstream.example",
        "default",
        PASSWORD,
    ))?;
    agent.apply(&private("stranger", "upstream.example/vm/disk:1"))?;
    let words = ["what that says of the mirror itself", "127.0.0.1:5001"];
    wait_for_message(&host, "default", "stranger", &words).with_context(|| agent.log())?;
    let deleted = agent.kvmctl("delete vmi stranger --grace-period 0")?;
    ensure!(deleted.code == Some(0), "{deleted}");
    agent.apply(&registry::pull_secret(
        "127.0.0.1:5001",
        "default",
        PASSWORD,
    ))?;
    agent.apply(&private("web", "upstream.example/vm/disk:1"))?;
    wait_for_message(
        &host,
        "default",
        "web",
        &["ImagePullBackOff", "127.0.0.1:5001"],
    )
    .with_context(|| agent.log())?;
    let kept = host.sh("ls /var/lib/kvmlet/host/images/layers/blobs/sha256 | wc -l")?;
    let why = agent.log();
    ensure!(kept.trim() == "1", "{kept} parts of layers are kept\n{why}");
    host.sh(&format!("rm /run/break && {start}"))?;
    passes(&agent, "web")?;
    corrupt_a_layer(&host, &agent)?;
    kill_in_mid_pull(&host, &agent)?;
    fill_in_mid_pull(&host, &agent)?;
    let ranges = host.sh("cat /run/ranges")?;
    let resumed = ranges.lines().any(|line| {
        let from = line
            .strip_prefix("bytes=")
            .and_then(|rest| rest.strip_suffix('-'));
        from.and_then(|from| from.parse::<u64>().ok())
            .is_some_and(|from| from > 1000)
    });
    ensure!(resumed, "no pull went on from where it was: {ranges}");
    Ok(())
}

/// Deletes a guest, and its image, which nobody else has.
fn remove(host: &Host, agent: &Agent<'_, Host>, name: &str) -> anyhow::Result<()> {
    let deleted = agent.kvmctl(&format!("delete vmi {name} --grace-period 0"))?;
    ensure!(deleted.code == Some(0), "{deleted}");
    host.wait_for("kvmctl image prune | grep 'removed'", PATIENCE)
        .map(drop)
}

/// A layer with another last byte is no disk, and the next attempt is without a fault.
fn corrupt_a_layer(host: &Host, agent: &Agent<'_, Host>) -> anyhow::Result<()> {
    remove(host, agent, "web")?;
    host.sh("touch /run/corrupt")?;
    let image = "upstream.example/vm/disk:1";
    let always = format!("{image}\", imagePullPolicy: \"Always");
    agent.apply(&private("corrupt", image).replace(image, &always))?;
    let words = ["the registry sent other bytes"];
    wait_for_message(host, "default", "corrupt", &words).with_context(|| agent.log())?;
    let disks = host.sh("ls -A /var/lib/kvmlet/host/images/sha256")?;
    ensure!(disks.is_empty(), "{disks}");
    host.sh("rm /run/corrupt")?;
    passes(agent, "corrupt")
}

/// An agent that is killed in mid-pull leaves nothing that is taken for a disk, and the next one goes on.
fn kill_in_mid_pull(host: &Host, agent: &Agent<'_, Host>) -> anyhow::Result<()> {
    remove(host, agent, "corrupt")?;
    begin(host, agent, "killed")?;
    agent.kill()?;
    let disks = host.sh("ls -A /var/lib/kvmlet/host/images/sha256")?;
    ensure!(disks.is_empty(), "{disks}");
    host.sh("rm /run/stall")?;
    agent.start()?;
    passes(agent, "killed")
}

/// A disk that is full in mid-pull is the reason that the guest waits, and it starts by itself when there is room.
fn fill_in_mid_pull(host: &Host, agent: &Agent<'_, Host>) -> anyhow::Result<()> {
    remove(host, agent, "killed")?;
    begin(host, agent, "full")?;
    leave_free(host, 0)?;
    host.sh("rm /run/stall")?;
    for reason in ["ErrImagePull", "ImagePullBackOff"] {
        let words = [reason, "cannot be written", "No space left on device"];
        wait_for_message(host, "default", "full", &words).with_context(|| agent.log())?;
    }
    let disks = host.sh(&format!("ls -A {STORE}/sha256"))?;
    ensure!(disks.is_empty(), "{disks}");
    host.sh(&format!("rm {STORE}/ballast"))?;
    passes(agent, "full")
}

/// Begins a pull that stops in the middle of its layer, as long as the registry has that order.
fn begin(host: &Host, agent: &Agent<'_, Host>, name: &str) -> anyhow::Result<()> {
    host.sh("touch /run/stall")?;
    let always = "disk:1\", imagePullPolicy: \"Always";
    agent.apply(&private(name, "upstream.example/vm/disk:1").replace("disk:1", always))?;
    let half = format!("find {STORE}/layers/blobs/sha256 -type f -size +1k | grep .");
    host.wait_for(&half, PATIENCE)
        .with_context(|| agent.log())
        .map(drop)
}

#[test]
fn archives_and_directories_that_skopeo_wrote_start_guests() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    let host = Host::enter()?;
    let agent = prepared(&host)?;
    agent.start()?;
    let copy = "skopeo copy --quiet --insecure-policy oci:/run/layout";
    host.sh(&format!(
        "mkdir -p {IMAGES} && {copy} oci-archive:{IMAGES}/a.tar:vm && {copy} docker-archive:{IMAGES}/d.tar:vm:1 && \
         {copy} dir:{IMAGES}/dir && head -c $(($(stat -c %s {IMAGES}/a.tar) / 2)) {IMAGES}/a.tar >{IMAGES}/cut.tar"
    ))?;
    for (name, image) in [
        ("oci", format!("oci-archive:{IMAGES}/a.tar")),
        ("docker", format!("docker-archive:{IMAGES}/d.tar:vm:1")),
        ("dir", format!("dir:{IMAGES}/dir")),
    ] {
        agent.apply(&guest(name, &image))?;
        passes(&agent, name).with_context(|| image)?;
    }
    let listed = agent.kvmctl("image ls -o json")?.stdout;
    let listed: serde_json::Value = serde_json::from_str(&listed)?;
    let kept = listed["items"].as_array().context("no images")?;
    let says = |image: &serde_json::Value| image["defaultPreference"] == "fedora";
    ensure!(kept.len() > 1 && kept.iter().all(says), "{listed}");
    agent.apply(&guest("cut", &format!("oci-archive:{IMAGES}/cut.tar")))?;
    wait_for_message(
        &host,
        "default",
        "cut",
        &["ErrImagePull", "it ends before its last file does"],
    )?;
    let deleted = agent.kvmctl("delete vmi oci docker dir cut --grace-period 0")?;
    ensure!(deleted.code == Some(0), "{deleted}");
    Ok(())
}
