use super::*;
use crate::pci::msi::testing::RecordingMsi;
use proptest::prelude::*;

fn unmask(msix: &mut Msix, vector: u64) {
    msix.write_table(vector * 16, &0xfee0_1000u64.to_le_bytes());
    msix.write_table(vector * 16 + 8, &0x41u32.to_le_bytes());
    msix.write_table(vector * 16 + 12, &0u32.to_le_bytes());
}

fn mask(msix: &mut Msix, vector: u64) {
    msix.write_table(vector * 16 + 12, &1u32.to_le_bytes());
}

#[test]
fn a_vector_raised_while_masked_is_sent_once_when_unmasked() {
    let binding = RecordingMsi::new();
    let mut msix = Msix::new(3, binding.clone()).unwrap();
    msix.set_control(CONTROL_ENABLE);
    msix.raise(1);
    msix.raise(1);
    let mut pending = [0];
    msix.read_pending(0, &mut pending);
    assert_eq!(pending, [0b10]);
    assert_eq!(binding.raised(1), 0);

    unmask(&mut msix, 1);
    assert_eq!(binding.raised(1), 1);
    msix.read_pending(0, &mut pending);
    assert_eq!(pending, [0]);
    let expected = MsiMessage {
        address: 0xfee0_1000,
        data: 0x41,
    };
    assert_eq!(binding.routed(1), Some(expected));

    mask(&mut msix, 1);
    assert_eq!(binding.routed(1), None);
}

#[test]
fn the_function_mask_holds_back_all_vectors() {
    let binding = RecordingMsi::new();
    let mut msix = Msix::new(2, binding.clone()).unwrap();
    unmask(&mut msix, 0);
    unmask(&mut msix, 1);
    assert_eq!(binding.routed(0), None);
    msix.set_control(CONTROL_ENABLE | CONTROL_MASK);
    msix.raise(0);
    msix.raise(1);
    assert_eq!(binding.raised(0), 0);
    msix.set_control(CONTROL_ENABLE);
    assert_eq!((binding.raised(0), binding.raised(1)), (1, 1));
}

#[test]
fn nothing_is_raised_or_pending_while_msix_is_off() {
    let binding = RecordingMsi::new();
    let mut msix = Msix::new(1, binding.clone()).unwrap();
    unmask(&mut msix, 0);
    msix.raise(0);
    msix.set_control(CONTROL_ENABLE);
    assert_eq!(binding.raised(0), 0);
}

#[test]
fn a_reset_disconnects_everything() {
    let binding = RecordingMsi::new();
    let mut msix = Msix::new(1, binding.clone()).unwrap();
    msix.set_control(CONTROL_ENABLE);
    unmask(&mut msix, 0);
    assert!(binding.routed(0).is_some());
    msix.reset();
    assert!(binding.routed(0).is_none());
    let mut image = [0xaa; 16];
    msix.read_table(0, &mut image);
    assert_eq!(image, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn a_refused_route_is_tried_again() {
    let binding = RecordingMsi::new();
    binding.refuse(true);
    let mut msix = Msix::new(1, binding.clone()).unwrap();
    msix.set_control(CONTROL_ENABLE);
    unmask(&mut msix, 0);
    msix.raise(0);
    binding.refuse(false);
    mask(&mut msix, 0);
    unmask(&mut msix, 0);
    assert_eq!(binding.raised(0), 1);
}

proptest! {
    #[test]
    fn accesses_of_any_width_and_place_are_harmless(
        accesses in prop::collection::vec((any::<bool>(), prop_oneof![0u64..200, any::<u64>()], 0usize..17), 0..60),
        controls in prop::collection::vec(any::<u16>(), 0..8),
    ) {
        let binding = RecordingMsi::new();
        let mut msix = Msix::new(9, binding).unwrap();
        let mut controls = controls.into_iter();
        for (write, offset, width) in accesses {
            let mut data = vec![0x5a; width];
            if write {
                msix.write_table(offset, &data);
                if let Some(control) = controls.next() {
                    msix.set_control(control);
                    msix.raise(control & 0xf);
                }
            } else {
                msix.read_table(offset, &mut data);
                msix.read_pending(offset, &mut data);
            }
        }
        for entry in &msix.entries {
            let open = msix.enabled && !msix.masked && entry.control & VECTOR_MASKED == 0;
            prop_assert_eq!(entry.routed, open.then_some(entry.message));
            prop_assert!(!(entry.pending && entry.routed.is_some()));
            prop_assert_eq!(entry.message.address % 4, 0);
        }
    }
}
