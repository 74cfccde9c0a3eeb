//! Taking away what no VMM needs any more. What is not there is success.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use agent_plan::{Failure, Holding, Record, Timestamp};

use super::LinuxHost;
use crate::failure::{chain, retry};
use crate::layout::{PathUid, remove_dir, remove_empty_dir};
use crate::work::Work;
use crate::{sandbox, taps};

impl LinuxHost {
    pub(super) async fn release(
        &self,
        uid: &PathUid,
        record: &Record,
        incarnation: u64,
        holdings: &BTreeSet<Holding>,
    ) -> Result<(), Failure> {
        let failed = |what: String| retry("ReleaseFailed", what);
        let over: Vec<u64> = self
            .layout
            .incarnations(uid)
            .map_err(|error| failed(error.to_string()))?
            .into_iter()
            .filter(|found| *found <= incarnation)
            .collect();
        self.refuse_while_alive(uid).await?;
        // What it was let send stays in the node's rules when its link has gone with its VMM, and its notes, which tell what
        // that is, go below.
        self.stop_answering(uid, &over);
        self.remove_nics(uid, &over);
        for holding in holdings {
            match holding {
                Holding::Taps => self.release_taps(uid).await?,
                Holding::Sandbox => {
                    for number in &over {
                        self.sandbox
                            .remove(&sandbox::name_of(uid, *number))
                            .await
                            .map_err(|error| failed(chain(&error)))?;
                    }
                }
                Holding::Disks => remove(self.layout.disks_of(uid)).await?,
                Holding::RunDir => {
                    if let Err(error) =
                        self.keep_log(uid, &record.id, record.launches.incarnation())
                    {
                        // A request for this log then gets the error that nothing is kept.
                        tracing::warn!(%error, "the console log of a VMI that goes cannot be kept");
                    }
                    self.release_dirs(uid, &over).await?;
                }
            }
        }
        Ok(())
    }

    /// The planner releases only what it saw no VMM of; this is the second lock on that door.
    async fn refuse_while_alive(&self, uid: &PathUid) -> Result<(), Failure> {
        let incarnations = self
            .layout
            .run_incarnations(uid)
            .map_err(|error| retry("ReleaseFailed", error.to_string()))?;
        for number in incarnations {
            match self.living_vmm(uid, number, Timestamp::default()).await {
                Ok(None) => {}
                Ok(Some(vmm)) => {
                    let message = format!("the VMM (pid {}) still runs", vmm.identity.pid);
                    return Err(retry("VmmRuns", message));
                }
                Err(why) => return Err(retry("VmmUnknown", why)),
            }
        }
        Ok(())
    }

    async fn release_taps(&self, uid: &PathUid) -> Result<(), Failure> {
        self.memory().vmi(uid).taps.clear();
        let failed = |error: std::io::Error| retry("ReleaseFailed", format!("taps: {error}"));
        for name in taps::existing(uid).map_err(failed)? {
            taps::remove(&name).await.map_err(failed)?;
        }
        Ok(())
    }

    async fn release_dirs(&self, uid: &PathUid, over: &[u64]) -> Result<(), Failure> {
        for number in over {
            remove(self.layout.run_of_vmm(uid, *number)).await?;
            remove(self.layout.state_of_vmm(uid, *number)).await?;
        }
        let remove_empty = || -> io::Result<()> {
            remove_empty_dir(&self.layout.run_of(uid))?;
            remove_empty_dir(&self.layout.state_of(uid))
        };
        remove_empty().map_err(|error| retry("ReleaseFailed", format!("run directory: {error}")))
    }
}

/// Removes a directory with all that is in it. Large files keep some file systems busy for seconds, and others never answer: no
/// thread of the runtime waits for them.
async fn remove(dir: PathBuf) -> Result<(), Failure> {
    let place = dir.clone();
    let work = Work::default();
    let removed = work.files(&dir, move || remove_dir(&place)).await;
    removed.map_err(|error| retry("ReleaseFailed", format!("{}: {error}", dir.display())))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Files whose removal takes longer than it takes to ask once more.
    const FILES: usize = 2000;

    #[tokio::test]
    async fn others_go_on_while_disks_are_removed() {
        let parent = tempfile::tempdir().expect("a directory");
        let dir = parent.path().join("disks");
        fs::create_dir(&dir).expect("is made");
        for number in 0..FILES {
            fs::write(dir.join(number.to_string()), b"").expect("is written");
        }
        let another = async {
            let is_there = dir.exists();
            is_there.then_some(())
        };
        // There is one thread: whoever comes second has a turn when the first waits.
        let (removed, met) = tokio::join!(remove(dir.clone()), another);
        assert_eq!((removed, met), (Ok(()), Some(())));
        assert!(!dir.exists());
    }
}
