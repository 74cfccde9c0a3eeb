//! Seeds of cloud-init: its `NoCloud` disks.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use crate::{cache, process, tools};

const BYTES: u64 = 8 << 20;

/// A disk that tells cloud-init `user_data`, as the instance `instance`. It is shared, so nobody writes to it.
///
/// # Errors
/// When the disk cannot be made.
pub fn seed(instance: &str, user_data: &str) -> anyhow::Result<PathBuf> {
    let meta_data = format!("instance-id: {instance}\n");
    let key = cache::key(&[meta_data.as_bytes(), user_data.as_bytes(), b"layout 1"]);
    let directory = cache::directory("seed", &key, |partial| {
        tools::ensure(tools::FIRMWARE)?;
        let image = partial.join("seed.raw");
        File::create(&image)?.set_len(BYTES)?;
        // The label by which cloud-init knows a seed.
        process::output(
            Command::new("/sbin/mkfs.vfat")
                .args(["-n", "CIDATA"])
                .arg(&image),
        )?;
        for (name, content) in [("meta-data", meta_data.as_str()), ("user-data", user_data)] {
            let file = partial.join(name);
            fs::write(&file, content)?;
            process::output(
                Command::new("mcopy")
                    .arg("-i")
                    .arg(&image)
                    .arg(&file)
                    .arg("::/"),
            )?;
        }
        Ok(())
    })?;
    Ok(directory.join("seed.raw"))
}
