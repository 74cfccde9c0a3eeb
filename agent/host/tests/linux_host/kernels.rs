//! Kernels: unpacked by the child, kept by digest.

use std::io::Write;

use agent_plan::{Action, Verdict};
use libtest_mimic::Trial;
use serde_json::json;

use crate::support::{Outcome, Place, UID, execute, files_below, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("a_compressed_kernel_is_unpacked_once", once),
        trial(
            "starts_at_the_same_time_unpack_a_kernel_once",
            at_the_same_time,
        ),
        trial("what_is_no_kernel_is_refused_with_the_reason", refused),
        trial("a_kernel_that_is_not_there_may_come", missing),
        trial("an_elf_is_booted_as_it_is", plain_elf),
    ]
}

/// A bzImage of boot protocol 2.15 around a payload.
fn bzimage(payload: &[u8]) -> Vec<u8> {
    let mut image = vec![0; 5 * 512];
    image[0x1f1] = 4;
    image[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x206..0x208].copy_from_slice(&[0x0f, 0x02]);
    image[0x24c..0x250].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
    image.extend(payload);
    image
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn elf() -> Vec<u8> {
    let mut elf = b"\x7fELF".to_vec();
    elf.resize(3 << 20, 7);
    elf
}

async fn once() -> Outcome {
    let place = Place::new();
    std::fs::write(place.images().join("vmlinuz"), bzimage(&gzip(&elf()))).unwrap();
    let host = place.host().await;
    let vmi = place.vmi(UID, &[]);
    execute(&host, &vmi, 1, Action::EnsureKernel).await.unwrap();
    let cache = place.state().join("cache/kernels");
    let [name] = files_below(&cache).try_into().unwrap();
    assert!(std::fs::read(cache.join(&name)).unwrap() == elf());

    // Other contents under its name show that it was not unpacked again.
    std::fs::write(cache.join(&name), "marked").unwrap();
    execute(&host, &vmi, 1, Action::EnsureKernel).await.unwrap();
    assert_eq!(std::fs::read(cache.join(&name)).unwrap(), b"marked");
    Ok(())
}

async fn at_the_same_time() -> Outcome {
    let place = Place::new();
    std::fs::write(place.images().join("vmlinuz"), bzimage(&gzip(&elf()))).unwrap();
    let host = place.host().await;
    let vmi = place.vmi(UID, &[]);
    let results = futures_util::future::join_all(
        (0..8).map(|_| execute(&host, &vmi, 1, Action::EnsureKernel)),
    )
    .await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(files_below(&place.state().join("cache/kernels")).len(), 1);
    Ok(())
}

async fn refused() -> Outcome {
    let place = Place::new();
    let host = place.host().await;
    let vmi = place.vmi(UID, &[]);
    let mut damaged = gzip(&elf());
    let middle = damaged.len() / 2;
    damaged[middle..].fill(0xff);
    for (contents, reason) in [
        (bzimage(&damaged), "gzip data is damaged"),
        (bzimage(&gzip(b"no kernel")), "not an ELF"),
        (bzimage(b"BZh91AY&SY"), "bzip2"),
        (b"#!/bin/sh".to_vec(), "no kernel"),
    ] {
        std::fs::write(place.images().join("vmlinuz"), contents).unwrap();
        let failure = execute(&host, &vmi, 1, Action::EnsureKernel)
            .await
            .unwrap_err();
        assert_eq!(failure.verdict, Verdict::Fatal, "{failure:?}");
        assert_eq!(failure.reason, "KernelNotBootable", "{failure:?}");
        assert!(failure.message.contains(reason), "{failure:?}");
        assert!(failure.message.contains("vmlinuz"), "{failure:?}");
    }
    assert!(files_below(&place.state()).is_empty());
    Ok(())
}

async fn missing() -> Outcome {
    let place = Place::new();
    let host = place.host().await;
    let vmi = place.vmi(UID, &[]);
    let failure = execute(&host, &vmi, 1, Action::EnsureKernel)
        .await
        .unwrap_err();
    assert_eq!(failure.verdict, Verdict::Retry);
    assert_eq!(failure.reason, "KernelNotFound");
    std::os::unix::fs::symlink("/etc/passwd", place.images().join("vmlinuz")).unwrap();
    let failure = execute(&host, &vmi, 1, Action::EnsureKernel)
        .await
        .unwrap_err();
    assert_eq!(failure.verdict, Verdict::Fatal, "{failure:?}");
    Ok(())
}

async fn plain_elf() -> Outcome {
    let place = Place::new();
    std::fs::write(place.images().join("vmlinuz"), elf()).unwrap();
    std::fs::write(place.images().join("initrd"), "ram").unwrap();
    let host = place.host().await;
    let initrd = (
        "/spec/domain/firmware/kernelBoot/container/initrdPath",
        json!("/initrd"),
    );
    let vmi = place.vmi(UID, &[initrd]);
    execute(&host, &vmi, 1, Action::EnsureKernel).await.unwrap();
    assert!(files_below(&place.state()).is_empty());
    Ok(())
}
