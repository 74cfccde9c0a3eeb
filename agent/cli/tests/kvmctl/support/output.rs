//! What `kvmctl` left, and what it is given.

use std::process::Output;

use super::Agent;

/// A VMI.
pub const WEB: &str = "apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web, labels: {app: web}}
spec:
  domain:
    memory: {guest: 512Mi}
    devices: {autoattachPodInterface: false}
    firmware:
      kernelBoot:
        container: {image: 'dir:/var/lib/kvmlet', kernelPath: /vmlinuz}
";

pub fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub fn write(agent: &Agent, name: &str, text: &str) -> String {
    let path = agent.dir().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// An agent with the VMI `web`.
pub fn with_web(agent: &Agent) {
    let file = write(agent, "web.yaml", WEB);
    let applied = agent.kvmctl(&["apply", "-f", &file]);
    assert_eq!(code(&applied), 0, "{}", err(&applied));
}
