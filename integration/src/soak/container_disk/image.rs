//! An image that buildah made and pushed, in a corner of this machine.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::artifacts;
use crate::authority::{Authority, DIRECTORY};
use crate::commands::Commands;
use crate::host::Host;
use crate::image::debian_disk::DebianDisk;
use crate::registry::{self, Access, PASSWORD, USER};

/// Where the image is, by the name of its registry's certificate.
pub(super) const REGISTRY: &str = "registry.test";
/// The name under which the image is pushed and pulled.
pub(super) const IMAGE: &str = "registry.test/team/debian:12";

/// How long buildah may take.
const PATIENCE: Duration = Duration::from_secs(900);

/// As in docs/container-disks.md.
const CONTAINERFILE: &str = "FROM scratch\nADD --chown=107:107 disk.qcow2 /disk/\n";

/// Whatever is in an image, nobody signed it.
const POLICY: &str = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;

/// It needs no driver of the kernel, and its whole store is below the work.
const BUILDAH: &str =
    "buildah --storage-driver vfs --root /run/buildah/store --runroot /run/buildah/run";

/// Directories of a registry with the image and of its certificates. They go with this value.
#[derive(Debug)]
pub(super) struct Pushed {
    host: Host,
    /// On a disk: an image takes more than what is in memory should.
    _work: tempfile::TempDir,
}

impl Pushed {
    /// Makes an image of `disk` and pushes it.
    ///
    /// # Errors
    /// When buildah or the registry fails.
    pub(super) fn of(disk: &DebianDisk) -> anyhow::Result<Self> {
        let host = Host::enter()?;
        let work = tempfile::tempdir_in(artifacts::directory()?)?;
        let (place, qcow2) = (work.path().display(), disk.qcow2.display());
        host.sh(&format!(
            "mkdir /run/buildah && mount --bind {place} /run/buildah && mkdir /run/buildah/context && \
             cp {qcow2} /run/buildah/context/disk.qcow2 && \
             printf '127.0.0.1 localhost {REGISTRY}\\n' >/run/hosts && mount --bind /run/hosts /etc/hosts"
        ))?;
        host.put(
            "/run/buildah/context/Containerfile",
            0o644,
            CONTAINERFILE.as_bytes(),
        )?;
        host.put("/run/buildah/policy.json", 0o644, POLICY.as_bytes())?;
        let authority = Authority::new(&host, "ca")?;
        authority.sign(
            "registry",
            "/CN=registry",
            &format!("DNS:{REGISTRY},DNS:localhost"),
        )?;
        let address = format!("{REGISTRY}:443");
        registry::start(&host, &address, "/run/buildah/registry", Access::ReadWrite)?;
        let pushed = Self { host, _work: work };
        pushed.build()?;
        pushed.push()?;
        Ok(pushed)
    }

    fn build(&self) -> anyhow::Result<()> {
        self.buildah(&format!(
            "bud --quiet --isolation chroot --signature-policy /run/buildah/policy.json -t {IMAGE} /run/buildah/context"
        ))
    }

    fn push(&self) -> anyhow::Result<()> {
        // Nothing is taken without the password.
        let push = format!(
            "push --quiet --cert-dir {DIRECTORY}/trusted --signature-policy /run/buildah/policy.json"
        );
        self.host.sh(&format!(
            "mkdir {DIRECTORY}/trusted && cp {DIRECTORY}/ca.crt {DIRECTORY}/trusted/"
        ))?;
        self.host.wait_for(
            &format!("curl -s --cacert {DIRECTORY}/ca.crt https://{REGISTRY}/v2/"),
            PATIENCE,
        )?;
        let refused = self.run(&format!("{push} --creds {USER}:wrong {IMAGE}"))?;
        ensure!(refused.code != Some(0), "any password will do: {refused}");
        self.buildah(&format!("{push} --creds '{USER}:{PASSWORD}' {IMAGE}"))
    }

    fn buildah(&self, words: &str) -> anyhow::Result<()> {
        let output = self.run(words)?;
        ensure!(output.code == Some(0), "buildah {words}: {output}");
        Ok(())
    }

    fn run(&self, words: &str) -> anyhow::Result<crate::commands::Output> {
        let script = format!("{BUILDAH} {words} </dev/null");
        self.host
            .run_for(&["sh", "-c", &script], PATIENCE)
            .context("buildah")
    }

    /// The registry's directory.
    pub(super) fn images(&self) -> PathBuf {
        self.host.path("/run/buildah/registry")
    }

    /// Its certificate and key, and who signed it.
    pub(super) fn certificates(&self) -> PathBuf {
        self.host.path(DIRECTORY)
    }
}
