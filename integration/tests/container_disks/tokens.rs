//! A registry whose tokens are short-lived.

use anyhow::ensure;
use integration::agent::CONFIG;
use integration::authority::{Authority, DIRECTORY};
use integration::commands::Commands;
use integration::host::Host;
use integration::{registry, skip_if, tools};

use super::registries::private;
use super::{PATIENCE, REGISTRY, missing, passes, prepared, start_registry};

/// Hands requests with a token on to the registry, with TLS; a token is for whoever has the password. It breaks off in the middle of the first blob, and from then on the token
/// of that request is worth nothing. It notes tokens and blobs.
const TOKENS: &str = r#"
import base64, http.client, http.server, json, ssl
PASS = "Basic " + base64.b64encode(b"alice:open sesame").decode()
issued, revoked, was_cut = 0, 0, False
CHALLENGE = 'Bearer realm="https://127.0.0.1:5001/token",service="tests",scope="repository:vm/disk:pull"'
def note(line):
    with open("/run/asked", "a") as log: log.write(line + "\n")
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def answer(self, status, headers, body, cut=False):
        self.send_response(status)
        for name, value in headers: self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body[:len(body) // 2] if cut else body)
        self.close_connection = True
    def do_GET(self):
        global issued, revoked, was_cut
        if self.path.startswith("/token?") and self.headers.get("Authorization") != PASS:
            note("token refused")
            return self.answer(401, [], b"")
        if self.path.startswith("/token?"):
            issued += 1
            note(f"token {issued}")
            return self.answer(200, [], json.dumps({"token": f"t{issued}"}).encode())
        is_blob = "/blobs/" in self.path
        if issued == revoked or self.headers.get("Authorization") != f"Bearer t{issued}":
            if is_blob: note("blob refused")
            return self.answer(401, [("WWW-Authenticate", CHALLENGE)], b"")
        upstream = http.client.HTTPConnection("127.0.0.1", 5000)
        headers = {k: v for k, v in self.headers.items() if k.title() in ("Range", "Accept")}
        upstream.request("GET", self.path, headers=headers)
        answer = upstream.getresponse()
        kept = [(k, v) for k, v in answer.getheaders() if k.lower() in ("content-type", "content-range")]
        if is_blob: note("blob from " + ("the middle" if self.headers.get("Range") else "the start"))
        expires = is_blob and not was_cut
        if expires: was_cut, revoked = True, issued
        self.answer(answer.status, kept, answer.read(), expires)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 5001), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/run/tls/tokens.crt", "/run/tls/tokens.key")
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
"#;

#[test]
fn a_token_that_expires_in_mid_pull_is_replaced_and_the_pull_goes_on() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    tools::ensure(tools::EXAMPLES)?;
    let host = Host::enter()?;
    let agent = prepared(&host)?;
    let authority = Authority::new(&host, "ca")?;
    authority.sign("tokens", "/CN=tokens", "IP:127.0.0.1")?;
    let settings = format!("\n[registries.\"127.0.0.1:5001\"]\nca = \"{DIRECTORY}/ca.crt\"\n");
    host.sh(&format!("printf '%s' '{settings}' >>{CONFIG}"))?;
    start_registry(&host)?;
    host.sh(&format!(
        "skopeo copy --quiet --insecure-policy --dest-tls-verify=false oci:/run/layout docker://{REGISTRY}/vm/disk:1"
    ))?;
    host.put("/run/tokens.py", 0o644, TOKENS.as_bytes())?;
    host.sh("setsid python3 /run/tokens.py </dev/null >/run/tokens.log 2>&1 &")?;
    let up = "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 5001))'";
    host.wait_for(up, PATIENCE)?;
    agent.start()?;
    let own = registry::pull_secret("127.0.0.1:5001", "default", registry::PASSWORD);
    agent.apply(&own)?;
    agent.apply(&private("web", "127.0.0.1:5001/vm/disk:1"))?;
    passes(&agent, "web")?;
    // One pull, which nobody had to try again: another one would have begun with a token of its own.
    let asked = host.sh("cat /run/asked")?;
    let expected = "token 1\nblob from the start\nblob refused\ntoken 2\nblob from the middle\n";
    let configuration = "blob from the start\n";
    let expected = format!("{expected}{configuration}");
    ensure!(asked == expected, "{asked}\n{}", agent.log());
    let deleted = agent.kvmctl("delete vmi web --grace-period 0")?;
    ensure!(deleted.code == Some(0), "{deleted}");
    Ok(())
}
