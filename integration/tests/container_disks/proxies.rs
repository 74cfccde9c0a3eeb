//! Nodes that reach registries over a proxy alone.

use anyhow::{Context, ensure};
use integration::agent::CONFIG;
use integration::authority::{Authority, DIRECTORY};
use integration::commands::Commands;
use integration::host::Host;
use integration::{skip_if, tools};

use super::{
    PATIENCE, REGISTRY, REGISTRY_DIR, guest, missing, passes, prepared, start_registry,
    wait_for_message,
};

/// A proxy that knows one host, and notes which ones it was asked for.
const PROXY: &str = r#"
import http.server, select, socket
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_CONNECT(self):
        with open("/run/connected", "a") as log: log.write(self.path + "\n")
        if self.path != "upstream.example:443":
            return self.send_error(403, "not from here")
        there = socket.create_connection(("127.0.0.1", 5443))
        self.send_response(200)
        self.end_headers()
        pair = [self.connection, there]
        while True:
            for one in select.select(pair, [], [])[0]:
                data = one.recv(65536)
                if not data: return
                pair[pair[0] is one].sendall(data)
http.server.ThreadingHTTPServer(("127.0.0.1", 3128), Handler).serve_forever()
"#;

/// The registry's images once more, with TLS, as `upstream.example`: a name that the proxy alone knows.
fn start_upstream(host: &Host) -> anyhow::Result<()> {
    let authority = Authority::new(host, "ca")?;
    authority.sign("upstream", "/CN=upstream", "DNS:upstream.example")?;
    let config = format!(
        "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {REGISTRY_DIR}}}}}\n\
         http: {{addr: \"127.0.0.1:5443\", tls: {{certificate: {DIRECTORY}/upstream.crt, key: {DIRECTORY}/upstream.key}}}}\n"
    );
    host.put("/run/upstream.yml", 0o644, config.as_bytes())?;
    host.sh("setsid docker-registry serve /run/upstream.yml </dev/null >/run/upstream.log 2>&1 &")?;
    host.put("/run/proxy.py", 0o644, PROXY.as_bytes())?;
    host.sh("setsid python3 /run/proxy.py </dev/null >/run/proxy.log 2>&1 &")?;
    for port in [5443, 3128] {
        let up = format!(
            "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}))'"
        );
        host.wait_for(&up, PATIENCE)?;
    }
    // That was no request.
    host.sh("rm -f /run/connected").map(drop)
}

#[test]
fn registries_are_reached_over_a_proxy_and_what_is_forbidden_is_not() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    tools::ensure(tools::EXAMPLES)?;
    let host = Host::enter()?;
    let agent = prepared(&host)?;
    let settings = format!(
        "\n[registries.\"*\"]\nproxy = \"http://127.0.0.1:3128\"\n\
         [registries.\"upstream.example\"]\nca = \"{DIRECTORY}/ca.crt\"\n\
         [registries.\"{REGISTRY}\"]\ninsecure = true\nproxy = \"none\"\n"
    );
    host.sh(&format!("printf '%s' '{settings}' >>{CONFIG}"))?;
    start_registry(&host)?;
    host.sh(&format!(
        "skopeo copy --quiet --insecure-policy --dest-tls-verify=false oci:/run/layout docker://{REGISTRY}/vm/disk:1"
    ))?;
    start_upstream(&host)?;
    agent.start()?;
    agent.apply(&guest("web", "upstream.example/vm/disk:1"))?;
    passes(&agent, "web")?;
    agent.apply(&guest("near", &format!("{REGISTRY}/vm/disk:1")))?;
    passes(&agent, "near")?;
    agent.apply(&guest("link", "169.254.169.254/vm/disk:1"))?;
    wait_for_message(&host, "default", "link", &["a link-local address"])
        .with_context(|| agent.log())?;
    agent.apply(&guest("unknown", "unknown.example/vm/disk:1"))?;
    let why = "the proxy 127.0.0.1:3128 does not connect to unknown.example";
    wait_for_message(&host, "default", "unknown", &[why, "403 not from here"])
        .with_context(|| agent.log())?;
    let asked = host.sh("sort -u /run/connected")?;
    ensure!(
        asked == "unknown.example:443\nupstream.example:443\n",
        "the proxy was asked for {asked}"
    );
    let deleted = agent.kvmctl("delete vmi web near link unknown --grace-period 0")?;
    ensure!(deleted.code == Some(0), "{deleted}");
    Ok(())
}
