//! State of a virtio function: what a driver programmed, and how far its rings are.

use super::registers::{FEATURES_OK, QueueRegisters, Registers};
use super::{TRANSPORT_FEATURES, VERSION_1, VirtioPciFunction};
use crate::pci::msix::VectorState;
use crate::state::{DeviceState, StateError};
use crate::virtio::queue::QueuePosition;

/// State of the transport; that of the device is a payload of its own.
#[derive(Clone, PartialEq, prost::Message)]
pub struct VirtioPciState {
    /// Device id of the virtio specification.
    #[prost(uint32, tag = "1")]
    device_id: u32,
    /// Configuration space as it was.
    #[prost(bytes = "vec", tag = "2")]
    config_space: Vec<u8>,
    /// Device status register.
    #[prost(uint32, tag = "3")]
    status: u32,
    /// Features that the driver took.
    #[prost(uint64, tag = "4")]
    driver_features: u64,
    #[prost(uint32, tag = "5")]
    device_feature_select: u32,
    #[prost(uint32, tag = "6")]
    driver_feature_select: u32,
    #[prost(uint32, tag = "7")]
    queue_select: u32,
    /// ISR byte.
    #[prost(uint32, tag = "8")]
    isr: u32,
    /// Vector of configuration changes.
    #[prost(uint32, tag = "9")]
    config_vector: u32,
    #[prost(message, repeated, tag = "10")]
    queues: Vec<QueueState>,
    #[prost(message, repeated, tag = "11")]
    vectors: Vec<VectorState>,
    /// The device owned its queues.
    #[prost(bool, tag = "12")]
    active: bool,
}

/// One queue.
#[derive(Clone, PartialEq, prost::Message)]
struct QueueState {
    #[prost(uint32, tag = "1")]
    size: u32,
    #[prost(bool, tag = "2")]
    enabled: bool,
    #[prost(uint64, tag = "3")]
    descriptors: u64,
    #[prost(uint64, tag = "4")]
    avail: u64,
    #[prost(uint64, tag = "5")]
    used: u64,
    #[prost(uint32, tag = "6")]
    vector: u32,
    /// Where an active queue was.
    #[prost(message, optional, tag = "7")]
    position: Option<QueuePosition>,
}

impl DeviceState for VirtioPciState {
    const KIND: &'static str = "virtio-pci";
    const VERSION: u32 = 1;
}

impl VirtioPciFunction {
    /// The state of the transport. The function is quiesced.
    pub(super) fn state(&self) -> VirtioPciState {
        let registers = &self.registers;
        let positions = self.device.queues();
        let queue = |(index, queue): (usize, &QueueRegisters)| QueueState {
            size: queue.size.into(),
            enabled: queue.enabled,
            descriptors: queue.descriptors,
            avail: queue.avail,
            used: queue.used,
            vector: self.interrupts.queue_vector(index).into(),
            position: positions.get(index).map(|queue| queue.position()),
        };
        let (device_feature_select, driver_feature_select, queue_select) = registers.selects();
        VirtioPciState {
            device_id: self.device.kind().id.into(),
            config_space: self.config.bytes().to_vec(),
            status: registers.status.into(),
            driver_features: registers.driver_features,
            device_feature_select,
            driver_feature_select,
            queue_select: queue_select.into(),
            isr: self.interrupts.isr().into(),
            config_vector: self.interrupts.config_vector().into(),
            queues: registers.queues.iter().enumerate().map(queue).collect(),
            vectors: self.interrupts.msix().vector_states(),
            active: self.active,
        }
    }

    /// Brings a function after power-on to `state`. Interrupts that were pending wait for
    /// [`resume`](crate::PciFunction::resume).
    pub(super) fn load(&mut self, state: &VirtioPciState) -> Result<(), StateError> {
        let wrong = |what: &str| VirtioPciState::wrong(what);
        if state.device_id != u32::from(self.device.kind().id) {
            return Err(wrong("it is of another kind of device"));
        }
        if !self.config.load(&state.config_space) {
            return Err(wrong("configuration space is of another function"));
        }
        self.load_registers(state)?;
        let control = self.config.u16_at(self.offsets.msix_control);
        if !self.interrupts.msix().load(control, &state.vectors) {
            return Err(wrong("the MSI-X table has another size"));
        }
        self.interrupts.set_isr(byte(state.isr, "ISR")?);
        self.interrupts
            .set_config_vector(word(state.config_vector, "vector of the configuration")?);
        for (index, queue) in state.queues.iter().enumerate() {
            let vector = word(queue.vector, "vector of a queue")?;
            self.interrupts.set_queue_vector(index, vector);
        }
        if state.active {
            self.activate_at(state)?;
        }
        Ok(())
    }

    fn load_registers(&mut self, state: &VirtioPciState) -> Result<(), StateError> {
        let status = byte(state.status, "status")?;
        let features = state.driver_features;
        let agreed = status & FEATURES_OK != 0;
        let possible = features & !self.features() == 0
            && features & VERSION_1 != 0
            && self.device.accepts(features & !TRANSPORT_FEATURES);
        if agreed && !possible {
            let what = format!("the driver took features {features:#x}, which are not offered");
            return Err(VirtioPciState::wrong(what));
        }
        let mut registers = Registers::new(self.device.queue_sizes());
        registers.status = status;
        registers.driver_features = features;
        registers.set_selects(
            state.device_feature_select,
            state.driver_feature_select,
            word(state.queue_select, "queue_select")?,
        );
        if registers.queues.len() != state.queues.len() {
            return Err(VirtioPciState::wrong("another number of queues"));
        }
        for (queue, saved) in registers.queues.iter_mut().zip(&state.queues) {
            let size = word(saved.size, "queue_size")?;
            if !size.is_power_of_two() || size > queue.max_size {
                let what = format!("queue_size {size} of at most {}", queue.max_size);
                return Err(VirtioPciState::wrong(what));
            }
            *queue = QueueRegisters {
                size,
                enabled: saved.enabled,
                descriptors: saved.descriptors,
                avail: saved.avail,
                used: saved.used,
                ..*queue
            };
        }
        self.registers = registers;
        Ok(())
    }

    /// Hands the device queues that go on where they were.
    fn activate_at(&mut self, state: &VirtioPciState) -> Result<(), StateError> {
        let Some(mut queues) = self.queues() else {
            return Err(VirtioPciState::wrong("a ring is not in guest memory"));
        };
        for (queue, saved) in queues.iter_mut().zip(&state.queues) {
            let position = saved.position.unwrap_or_default();
            if !queue.set_position(&position) {
                return Err(VirtioPciState::wrong("position of a queue"));
            }
        }
        match self.device.activate(self.context(queues)) {
            Ok(()) => self.active = true,
            // The driver can reset it; the rest of the guest is sound.
            Err(_) => self.fail(),
        }
        Ok(())
    }
}

fn word(value: u32, what: &str) -> Result<u16, StateError> {
    u16::try_from(value).map_err(|_| VirtioPciState::wrong(format!("{what} {value:#x}")))
}

fn byte(value: u32, what: &str) -> Result<u8, StateError> {
    u8::try_from(value).map_err(|_| VirtioPciState::wrong(format!("{what} {value:#x}")))
}
