//! What an agent keeps of images, as somebody sees it who knows what they are.

use anyhow::{Context, ensure};

use crate::commands::Commands;

/// What an agent keeps of images.
pub(super) const STORE: &str = "/var/lib/kvmlet/host/images";

/// Content of the image store.
pub(super) struct Found {
    pub disks: u64,
    pub parts: u64,
}

/// The store of a machine that has the images themselves at `source`.
pub(super) struct Store<'a, M: Commands> {
    pub machine: &'a M,
    pub source: &'a str,
}

impl<M: Commands> Store<'_, M> {
    /// Gives it a file system of its own in memory.
    pub(super) fn mount(&self, mib: u64) -> anyhow::Result<()> {
        self.machine
            .sh(&format!(
                "mkdir -p -m 0700 {STORE} && mount -t tmpfs -o size={mib}m,mode=0700 images {STORE}"
            ))
            .map(drop)
    }

    /// What goes on in processes of their own.
    pub(super) fn stage(&self) -> anyhow::Result<String> {
        let script = "pgrep -f '[c]onvert-image$' >/dev/null && echo convert && exit; \
                      pgrep -f '[r]ead-layers$' >/dev/null && echo unpack && exit; \
                      pgrep -f '[p]ull-image$' >/dev/null && echo pull && exit; echo nothing";
        Ok(self.machine.sh(script)?.trim().to_owned())
    }

    /// Kills one of these. Returns whether there was one.
    pub(super) fn kill_child(&self) -> anyhow::Result<bool> {
        let script = "for each in $(pgrep -f '([c]onvert-image|[r]ead-layers|[p]ull-image)$'); do \
                      kill -9 $each 2>/dev/null && echo killed; done; true";
        Ok(!self.machine.sh(script)?.is_empty())
    }

    /// Compares each disk with its digest, and each part of a layer with the layer. Nothing else has a name.
    pub(super) fn check(&self) -> anyhow::Result<Found> {
        let source = self.source;
        // A prune may go on: what it has removed is gone, and that is all.
        // What a prune has begun to remove is gone a second later.
        let script = format!(
            "cd {STORE}/sha256 2>/dev/null || exit 0; \
             for each in $(ls -A); do case $each in \
             *.raw) sum=$(sha256sum <$each 2>/dev/null) || continue; test \"$sum\" || continue; \
             grep -q -x \"${{each%.raw}} ${{sum%% *}}\" {source}/expected || {{ echo \"$each is another disk: $sum\"; exit 1; }}; \
             echo disk;; \
             *) sleep 1; ! test -e $each || {{ echo \"$each stays behind\"; exit 1; }};; esac; done; \
             cd {STORE}/layers/blobs/sha256 2>/dev/null || exit 0; \
             for each in $(ls -A); do size=$(stat -c %s $each 2>/dev/null) || continue; \
             head -c $size {source}/layout/blobs/sha256/$each | cmp -s - $each || ! test -e $each || \
             {{ echo \"$each begins with what is not of that layer\"; exit 1; }}; echo part; done"
        );
        let listed = self.machine.run(&["sh", "-c", &script])?;
        ensure!(listed.code == Some(0), "the store: {listed}");
        let count = |word| listed.stdout.lines().filter(|line| *line == word).count();
        Ok(Found {
            disks: u64::try_from(count("disk")).context("disks")?,
            parts: u64::try_from(count("part")).context("parts")?,
        })
    }
}
