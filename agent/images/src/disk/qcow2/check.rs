//! All tables of an image, read once before anything is written.
//!
//! What is found here would otherwise be found when half a disk is written; and tables that point at
//! each other would make a small file cost much.

use super::entry::{self, Mapping};
use super::header::ENTRY_BYTES;
use super::refcounts::{in_use, take_table};
use super::used::Used;
use super::{Qcow2, refcounts, snapshots};
use crate::disk::error::DiskError;
use crate::disk::format::{be64, index};

impl Qcow2 {
    /// Fails when a table or a cluster lies outside of the file, or at a place that is in use already,
    /// or at one that the reference counts say is free. `map_bytes` bounds the memory for that; of the
    /// disk only the first `disk_bytes` are looked at.
    pub(in crate::disk) fn check(
        &mut self,
        map_bytes: u64,
        disk_bytes: u64,
    ) -> Result<(), DiskError> {
        let mut used = Used::new(&self.source, self.header.cluster_bits, map_bytes)?;
        let cluster = self.header.cluster_bytes();
        used.take(0, 1);
        let l1_bytes = self.header.l1_entries * ENTRY_BYTES;
        take_table(
            &self.source,
            &mut used,
            ("the L1 table", self.header.l1_offset, l1_bytes),
            cluster,
        )?;
        snapshots::check(&self.source, &self.header, &mut used)?;
        let blocks = refcounts::check_table(&self.source, &self.header, &mut used)?;
        let end = self.header.virtual_bytes.min(disk_bytes);
        for l1_index in 0..end.div_ceil(self.header.l2_covers_bytes()) {
            self.check_l2(l1_index, end, &mut used)?;
        }
        if self.header.is_dirty {
            // Nobody promises that they are right, and they are not needed.
            return Ok(());
        }
        refcounts::check_counts(&self.source, &self.header, &used, &blocks)
    }

    fn check_l2(
        &mut self,
        l1_index: u64,
        disk_bytes: u64,
        used: &mut Used,
    ) -> Result<(), DiskError> {
        let Some(offset) = self.l2_offset(l1_index)? else {
            return Ok(());
        };
        let (cluster, unit) = (self.header.cluster_bytes(), self.header.unit_bytes());
        let what = format!("the L2 table of L1 entry {l1_index}");
        take_table(&self.source, used, (&what, offset, cluster), cluster)?;
        let mut at = l1_index * self.header.l2_covers_bytes();
        let end = at
            .saturating_add(self.header.l2_covers_bytes())
            .min(disk_bytes);
        while at < end {
            let length = unit.min(end - at);
            let mapping = self.mapping(at)?;
            let is_new = at.is_multiple_of(cluster);
            if let Mapping::Data { offset } = mapping {
                let what = format_args!("the disk's data at {at:#x}");
                self.source.holds(what, offset, length)?;
            }
            match mapping {
                // The result of the cluster's first part holds for all.
                _ if !is_new => {}
                Mapping::Unallocated | Mapping::Zero => {
                    self.hold(("the place for the disk's cluster", at), used)?;
                }
                Mapping::Data { .. } => self.hold(("the disk's data", at), used)?,
                Mapping::Compressed { offset, length } => {
                    let what = format_args!("the compressed data of the disk's cluster at {at:#x}");
                    self.source.holds(what, offset, 1)?;
                    if !used.share(offset, length.min(self.source.bytes - offset)) {
                        return Err(in_use(&self.source, what, offset));
                    }
                }
            }
            at += unit;
        }
        Ok(())
    }

    /// Takes the place that a cluster has in the file. One that reads as zero may have one for later.
    fn hold(&mut self, (what, at): (&str, u64), used: &mut Used) -> Result<(), DiskError> {
        let place = self.header.l2_index(at) * self.header.l2_entry_bytes();
        let held = self
            .l2_of(at)?
            .map_or(0, |table| entry::held(be64(table, index(place))));
        if held != 0 && held < self.source.bytes && !used.take(held, 1) {
            let what = format_args!("{what} at {at:#x}");
            return Err(in_use(&self.source, what, held));
        }
        Ok(())
    }
}
