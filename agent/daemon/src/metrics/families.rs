//! Families of samples, as they are collected for one answer.

use std::borrow::Cow;
use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Names and values of labels.
pub(super) type SampleLabels = Vec<(Cow<'static, str>, String)>;

/// One value of a family.
pub(super) struct Sample {
    pub(super) labels: SampleLabels,
    pub(super) value: f64,
}

impl Sample {
    /// One without labels.
    pub(super) fn plain(value: f64) -> Self {
        Self {
            labels: Vec::new(),
            value,
        }
    }
}

/// What a family counts.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// Only ever more; the name has no `_total`, which is added.
    Counter,
    /// A value that goes up and down.
    Gauge,
}

/// Writes a family. One without samples is left out.
pub(super) fn family(
    out: &mut DescriptorEncoder<'_>,
    kind: Kind,
    (name, help): (&str, &str),
    samples: impl IntoIterator<Item = Sample>,
) -> fmt::Result {
    let mut samples = samples.into_iter().peekable();
    if samples.peek().is_none() {
        return Ok(());
    }
    let described = match kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
    };
    let mut family = out.encode_descriptor(name, help, None, described)?;
    for sample in samples {
        let mut one = family.encode_family(&sample.labels)?;
        match kind {
            Kind::Counter => one.encode_counter::<NoLabelSet, f64, f64>(&sample.value, None)?,
            Kind::Gauge => one.encode_gauge(&sample.value)?,
        }
    }
    Ok(())
}

/// A count as a sample has it.
pub(super) fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::from(u32::MAX), f64::from)
}
