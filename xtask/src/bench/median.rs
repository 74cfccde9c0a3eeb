//! The middle of many values, and how far from it they go.

/// The median; 0 without values.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or_default();
    f64::midpoint(at(sorted.len().saturating_sub(1) / 2), at(sorted.len() / 2))
}

/// The middle and both ends of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Spread {
    pub(super) fn of(values: &[f64]) -> Self {
        Self {
            median: median(values),
            least: values.iter().copied().fold(f64::INFINITY, f64::min),
            most: values.iter().copied().fold(0.0, f64::max),
        }
    }

    /// Of what `values` are of `others`, round by round: what slows a whole round down slows down both.
    pub(super) fn of_ratios(values: &[f64], others: &[f64]) -> Self {
        let pairs = values.iter().zip(others);
        let ratios: Vec<f64> = pairs.map(|(value, other)| value / other).collect();
        Self::of(&ratios)
    }
}

#[cfg(test)]
mod tests {
    use super::{Spread, median};

    #[test]
    fn the_median_of_an_even_count_lies_between_two() {
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), 3.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn ratios_are_those_of_rounds_and_not_of_medians() {
        // The machine was slow in the second round, and something met one of the two in the third.
        let ratios = Spread::of_ratios(&[90.0, 9.0, 50.0], &[100.0, 10.0, 100.0]);
        let wanted = Spread {
            median: 0.9,
            least: 0.5,
            most: 0.9,
        };
        assert_eq!(ratios, wanted);
    }
}
