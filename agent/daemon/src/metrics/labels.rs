//! Labels and histograms of metrics.

use agent_sources::ObjectRef;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

/// Labels of one time series.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Histograms, by labels.
pub(super) type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// Bounds for what takes microseconds when all is well: commits, calls, rounds. Seconds.
pub(super) const FINE: [f64; 16] = [
    0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
    10.0,
];

/// Bounds for the way of a guest from phase to phase: starts of milliseconds, ends of minutes. Seconds.
pub(super) const PHASES: [f64; 24] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0,
    10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 3600.0,
];

pub(super) fn fine() -> Histogram {
    Histogram::new(FINE)
}

pub(super) fn phases() -> Histogram {
    Histogram::new(PHASES)
}

pub(super) fn of_vmi(target: &ObjectRef) -> Labels {
    vec![
        ("namespace", target.namespace.clone()),
        ("name", target.name.clone()),
    ]
}
