//! Samples become figures: medians, and how ours compare.

use std::collections::BTreeMap;

use integration::vmm_bench::{Sample, Work, names};

use super::contenders::{KVMLET, Kernel, MICROVM};
use crate::bench::figure::{Better, Figure};
use crate::bench::median::median;

/// All values of one measure of one hypervisor.
#[derive(Default)]
pub struct Rows {
    icount: bool,
    values: BTreeMap<Key, Vec<f64>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    work: &'static str,
    kernel: Kernel,
    measure: String,
    contender: String,
}

/// How a measure is shown.
struct Shown {
    unit: &'static str,
    better: Better,
    /// What a value is multiplied by.
    scale: f64,
}

impl Rows {
    /// No samples yet.
    pub fn new(icount: bool) -> Self {
        Self {
            icount,
            values: BTreeMap::new(),
        }
    }

    /// Takes samples in.
    pub fn add(&mut self, work: Work, kernel: Kernel, samples: &[Sample]) {
        for sample in samples {
            for (measure, value) in &sample.values {
                // Boots of other work have a larger initramfs.
                let is_of_boot = [
                    names::BOOT,
                    names::EXITS,
                    names::PORT_EXITS,
                    names::MMIO_EXITS,
                ]
                .contains(&measure.as_str());
                if is_of_boot && work != Work::Boot {
                    continue;
                }
                let key = Key {
                    work: work.word(),
                    kernel,
                    measure: measure.clone(),
                    contender: sample.name.clone(),
                };
                self.values.entry(key).or_default().push(*value);
            }
        }
    }

    /// A figure for each measure and hypervisor.
    pub fn measured(&self) -> Vec<Figure> {
        let values = self.values.iter();
        values
            .map(|(key, values)| self.figure(key, values))
            .collect()
    }

    /// These, and the ratio that the project promises where there are boots.
    pub fn figures(&self) -> Vec<Figure> {
        let mut figures = self.measured();
        let boot = |contender: &str| {
            let key = Key {
                work: Work::Boot.word(),
                kernel: Kernel::Bench,
                measure: names::BOOT.to_owned(),
                contender: contender.to_owned(),
            };
            let values = self.values.get(&key);
            values.map(|values| median(values))
        };
        let (Some(ours), Some(microvm)) = (boot(KVMLET), boot(MICROVM)) else {
            return figures;
        };
        let ratio = Figure::new(
            "exec to /init, kvmlet against qemu-microvm",
            ours / microvm,
            "ratio",
            Better::Less,
        );
        figures.push(if self.icount {
            // Firecracker's in the same set-up.
            ratio.budget(0.4, 0.33)
        } else {
            ratio
        });
        figures
    }

    fn figure(&self, key: &Key, values: &[f64]) -> Figure {
        let shown = self.shown(&key.measure);
        let name = format!(
            "{}, {}: {} of {}",
            key.kernel.name(),
            key.work,
            key.measure.trim_end_matches("_us").trim_end_matches("_kib"),
            key.contender
        );
        let value = median(values) * shown.scale;
        let least = values.iter().copied().fold(f64::INFINITY, f64::min) * shown.scale;
        let most = values.iter().copied().fold(0.0, f64::max) * shown.scale;
        let figure = Figure::new(&name, value, shown.unit, shown.better).how(&format!(
            "median of {}, from {least:.2} to {most:.2}",
            values.len()
        ));
        match (key.contender.as_str(), key.measure.as_str()) {
            (KVMLET, names::MEMORY) => figure.budget(5.0, 3.0),
            _ => figure,
        }
    }

    fn shown(&self, measure: &str) -> Shown {
        let shown = |unit, better, scale| Shown {
            unit,
            better,
            scale,
        };
        match measure {
            // One instruction is one nanosecond.
            names::BOOT if self.icount => shown("Minstr", Better::Less, 1e-3),
            names::BOOT => shown("ms", Better::Less, 1e-3),
            names::EXITS | names::PORT_EXITS | names::MMIO_EXITS => {
                shown("exits", Better::Less, 1.0)
            }
            names::MEMORY | names::ANONYMOUS => shown("MiB", Better::Less, 1.0 / 1024.0),
            "tcp_round_trips" => shown("per s", Better::More, 1.0),
            _ if measure.starts_with("tcp") => shown("Mbit/s", Better::More, 1.0),
            _ if measure.starts_with("seq") => shown("MiB/s", Better::More, 1.0),
            _ => shown("per s", Better::More, 1.0),
        }
    }
}
