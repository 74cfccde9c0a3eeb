//! Disk images, as the agent gets them: a chain of up to three.

use agent_images::disk::{ConvertLimits, DiskError, DiskFormat, Layer, convert, disk_info};

use crate::input::Input;

const LIMITS: ConvertLimits = ConvertLimits {
    output_bytes: 256 << 10,
    map_bytes: 64 << 10,
};

/// The number of images, of each its declared format and its length, and the files.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let depth = input.below(3);
    let mut images = Vec::new();
    for _ in 0..depth {
        let format = format(&mut input);
        let length = usize::from(input.u16());
        images.push((format, input.bytes(length)));
    }
    images.push((format(&mut input), input.rest()));
    let layers = || images.iter().map(|(format, bytes)| layer(*format, bytes));
    if let Some(layer) = layers().next() {
        // An error is as good as an answer.
        let _ = disk_info(layer);
    }
    let first = disk_of(layers().collect());
    let again = disk_of(layers().collect());
    match (first, again) {
        (Ok(first), Ok(again)) => assert!(first == again, "two disks of one chain"),
        (Err(first), Err(again)) => assert_eq!(first.to_string(), again.to_string()),
        _ => panic!("refused only once"),
    }
}

fn disk_of(layers: Vec<Layer>) -> Result<Vec<u8>, DiskError> {
    let mut disk = Vec::new();
    let done = convert(layers, &mut disk, &LIMITS, &mut |done, total| {
        assert!(done <= total, "more is done than there is");
    })?;
    assert_eq!(done.virtual_bytes, disk.len() as u64);
    assert!(done.written_bytes <= done.virtual_bytes);
    assert!(done.virtual_bytes <= LIMITS.output_bytes);
    Ok(disk)
}

fn format(input: &mut Input<'_>) -> Option<DiskFormat> {
    match input.below(3) {
        0 => None,
        1 => Some(DiskFormat::Qcow2),
        _ => Some(DiskFormat::Raw),
    }
}

fn layer(format: Option<DiskFormat>, bytes: &[u8]) -> Layer {
    Layer {
        name: "image".to_owned(),
        reader: Box::new(bytes.to_vec()),
        format,
    }
}
