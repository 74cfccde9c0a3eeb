//! Taking away what no VMM needs any more. What is not there is success.

use std::collections::BTreeSet;

use agent_plan::{Failure, Holding, Record, Timestamp};

use super::LinuxHost;
use crate::failure::{chain, retry};
use crate::layout::{PathUid, remove_dir, remove_empty_dir};
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
        self.forget_cards(uid, &over);
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
                Holding::Disks => {
                    let dir = self.layout.disks_of(uid);
                    remove_dir(&dir)
                        .map_err(|error| failed(format!("{}: {error}", dir.display())))?;
                }
                Holding::RunDir => {
                    if let Err(error) =
                        self.keep_log(uid, &record.id, record.launches.incarnation())
                    {
                        // A request for this log then gets the error that nothing is kept.
                        tracing::warn!(%error, "the console log of a VMI that goes cannot be kept");
                    }
                    self.release_dirs(uid, &over)?;
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

    fn release_dirs(&self, uid: &PathUid, over: &[u64]) -> Result<(), Failure> {
        let remove = || -> std::io::Result<()> {
            for number in over {
                remove_dir(&self.layout.run_of_vmm(uid, *number))?;
                remove_dir(&self.layout.state_of_vmm(uid, *number))?;
            }
            remove_empty_dir(&self.layout.run_of(uid))?;
            remove_empty_dir(&self.layout.state_of(uid))
        };
        remove().map_err(|error| retry("ReleaseFailed", format!("run directory: {error}")))
    }
}
