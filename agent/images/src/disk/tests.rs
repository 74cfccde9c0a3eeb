//! Chains that a writer of our own makes, sound ones and damaged ones. What `qemu-img` makes is in
//! `integration/tests/image_convert`.

mod builder;
mod chains;
mod hostile;

use super::{ConvertLimits, Converted, DiskError, DiskFormat, Layer, convert};

/// An image in memory as a layer.
fn layer(name: &str, bytes: &[u8]) -> Layer {
    Layer {
        name: name.to_owned(),
        reader: Box::new(bytes.to_vec()),
        format: None,
    }
}

/// Converts with room for a MiB.
fn converted(layers: Vec<Layer>) -> Result<(Vec<u8>, Converted), DiskError> {
    let limits = ConvertLimits {
        output_bytes: 1 << 20,
        ..ConvertLimits::default()
    };
    let mut disk = Vec::new();
    let done = convert(layers, &mut disk, &limits, &mut |done, total| {
        assert!(done <= total);
    })?;
    Ok((disk, done))
}

/// What one image is refused with.
fn refusal(image: &[u8]) -> String {
    refusal_of(vec![layer("it", image)])
}

fn refusal_of(layers: Vec<Layer>) -> String {
    converted(layers).expect_err("refused").to_string()
}

/// As if the user had said `-f`.
fn with_format(mut layer: Layer, format: DiskFormat) -> Layer {
    layer.format = Some(format);
    layer
}
