//! What the benchmarks print.

use integration::vmm_bench::FIGURE_LINE;

/// Prints a figure.
pub fn figure(name: &str, value: f64) {
    println!("{FIGURE_LINE}{name} {value}");
}
