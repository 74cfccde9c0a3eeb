//! A disk that comes to rest with requests in flight.

use super::*;
use crate::pci::function::PciFunction;

/// A file that knows no `FALLOC_FL_ZERO_RANGE`, and a disk on it that has the ring look all the same.
fn disk_without_zeroes(file: &File, payloads: Option<&mut Payloads>) -> BlkDevice {
    let image = file.try_clone().unwrap().into();
    let mut none = Payloads::new(Vec::new());
    let payloads = payloads.unwrap_or(&mut none);
    let config = config_with(IoEngine::Automatic);
    let mut device = BlkDevice::restored(image, &config, Arc::new(|_| {}), payloads).unwrap();
    device.disk.backend.is_in_memory = false;
    device
}

/// Makes the disk's engine ready; whether it is a ring.
fn has_ring(device: &mut BlkDevice) -> bool {
    let layout = vmm_memory::Layout::new(RAM_BYTES as u64, 40).unwrap();
    let memory = Arc::new(vmm_memory::create_ram(&layout).unwrap());
    let disk = &mut device.disk;
    disk.engine.prepare(&disk.backend, &disk.control, &memory);
    disk.engine.ring().is_some()
}

/// Whether a disk on `image` has a ring.
pub(super) fn has_ring_on(image: &File, config: &BlkConfig) -> bool {
    let image = image.try_clone().unwrap().into();
    has_ring(&mut BlkDevice::new(image, config, Arc::new(|_| {})).unwrap())
}

/// Has the driver of a disk ask for zeroes of `sectors`, and the machine held before the ring is done with
/// all of them. Some filters forbid the machine's own thread what serving a disk takes, such as `BLKZEROOUT`.
fn held_with_zeroes_in_flight(file: &File, sectors: u8) -> (Driver, usize) {
    for _ in 0..100 {
        fill(file);
        let device = disk_without_zeroes(file, None);
        let features = VERSION_1 | INDIRECT_DESC | device.features();
        let mut driver = Driver::ready(Box::new(device), 256, features);
        for sector in 1..=sectors {
            let header_at = HEADER + u64::from(sector) * 64;
            driver.fill(header_at, &header(WRITE_ZEROES, 0));
            let mut segment = u64::from(sector).to_le_bytes().to_vec();
            segment.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
            driver.fill(header_at + 16, &segment);
            let status = DATA + u64::from(sector);
            driver.fill(status, &[0xff]);
            driver.offer(0, &[read(header_at, 32), write(status, 1)]);
        }
        driver.ring_kick(0);
        driver.function.handle_event(0);
        driver.function.quiesce().unwrap();
        let mut answered = 0;
        while driver.used(0).is_some() {
            answered += 1;
        }
        if answered < usize::from(sectors) {
            return (driver, answered);
        }
    }
    panic!("the ring was always done at once");
}

#[test]
fn what_the_ring_leaves_over_while_the_machine_is_held_is_done_by_the_disks_own_thread() {
    const COUNT: u8 = 32;
    for is_moved in [false, true] {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else {
            return test_skip::report("there is no /dev/shm");
        };
        if !has_ring(&mut disk_without_zeroes(&file, None)) {
            return test_skip::report("there is no io_uring");
        }
        let (mut driver, answered) = held_with_zeroes_in_flight(&file, COUNT);
        let zeroed = (1..=u64::from(COUNT)).filter(|at| sector_of(&file, *at) == [0; 512]);
        assert_eq!(zeroed.count(), answered);
        assert!(driver.function.save().len() > 1);
        if is_moved {
            driver =
                driver.moved_by(|payloads| Box::new(disk_without_zeroes(&file, Some(payloads))));
        }
        driver.function.resume();
        for _ in answered..usize::from(COUNT) {
            assert!(driver.wait_used(0).is_some());
        }
        assert_eq!(driver.bytes(DATA + 1, COUNT.into()), [0; COUNT as usize]);
        for sector in 1..=u64::from(COUNT) {
            assert_eq!(sector_of(&file, sector), [0; 512]);
        }
        driver.function.quiesce().unwrap();
        assert_eq!(driver.function.save().len(), 1);
        assert!(!driver.needs_reset());
    }
}

#[test]
fn a_disk_without_a_driver_is_at_rest_when_the_host_is() {
    let mut device =
        BlkDevice::new(image().into(), &BlkConfig::default(), Arc::new(|_| {})).unwrap();
    if !has_ring(&mut device) {
        return test_skip::report("there is no io_uring");
    }
    let disk = &mut device.disk;
    let ring = disk.engine.ring().unwrap();
    // What a driver that reset its disk may leave behind, if the host takes longer than a reset waits.
    ring.sync(0).unwrap();
    ring.submit().unwrap();
    assert_eq!(disk.engine.in_flight(), 1);
    device.quiesce().unwrap();
    assert_eq!(device.disk.engine.in_flight(), 0);
}
