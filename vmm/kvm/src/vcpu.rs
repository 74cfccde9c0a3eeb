//! One vCPU.

use std::sync::Arc;

use kvm_bindings::{kvm_dtable, kvm_segment};
use kvm_ioctls::{KvmRunWrapper, VcpuExit, VcpuFd};

use crate::cpu::GuestCpu;
use crate::error::KvmError;
use crate::kick::VcpuKick;
use crate::vm::Vm;

mod hyperv_exit;
mod setup;

/// A flat segment, as far as boot protocols care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Selector: byte offset in the GDT.
    pub selector: u16,
    /// Last byte, in bytes.
    pub limit: u32,
    /// Type field of the descriptor (Intel SDM 3A, 3.4.5.1).
    pub kind: u8,
    /// A code segment of 64-bit mode.
    pub long: bool,
    /// Code or data, not a system segment.
    pub code_or_data: bool,
}

/// Registers of the boot processor at the first guest instruction. What is not named is as after
/// power-on, and interrupts are off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartState {
    /// First instruction.
    pub rip: u64,
    /// Stack pointer.
    pub rsp: u64,
    /// Linux: address of `boot_params`.
    pub rsi: u64,
    /// PVH: address of `hvm_start_info`.
    pub rbx: u64,
    /// Control register 0.
    pub cr0: u64,
    /// Control register 3.
    pub cr3: u64,
    /// Control register 4.
    pub cr4: u64,
    /// Extended feature enable register.
    pub efer: u64,
    /// CS.
    pub code: Segment,
    /// DS, ES, FS, GS and SS.
    pub data: Segment,
    /// TR.
    pub task: Segment,
    /// Base and limit of the GDT.
    pub gdt: (u64, u16),
}

/// Why a vCPU cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureDetail {
    /// `KVM_EXIT_FAIL_ENTRY`: the hardware's reason.
    EntryFailed(u64),
    /// `KVM_EXIT_INTERNAL_ERROR`: the suberror.
    InternalError(u32),
    /// An exit reason that no guest of ours should cause.
    UnexpectedExit(&'static str),
}

/// Why a vCPU came back from the guest.
#[derive(Debug)]
pub enum Exit<'a> {
    /// `in`: fill `data`, in units of `width` bytes, each from `port`.
    PortRead {
        /// I/O port.
        port: u16,
        /// 1, 2 or 4.
        width: usize,
        /// One unit, or more for string instructions.
        data: &'a mut [u8],
    },
    /// `out`: `data`, in units of `width` bytes, each to `port`.
    PortWrite {
        /// I/O port.
        port: u16,
        /// 1, 2 or 4.
        width: usize,
        /// One unit, or more for string instructions.
        data: &'a [u8],
    },
    /// A read where no RAM is.
    MmioRead {
        /// Guest-physical address.
        address: u64,
        /// To be filled, 1 to 8 bytes.
        data: &'a mut [u8],
    },
    /// A write where no RAM is.
    MmioWrite {
        /// Guest-physical address.
        address: u64,
        /// 1 to 8 bytes.
        data: &'a [u8],
    },
    /// A kick, another signal, or nothing at all.
    Interrupted,
    /// Something that was seen to already; the guest goes on with the next entry.
    Answered,
    /// Triple fault.
    Shutdown,
    /// The guest asked the hypervisor for a power-off.
    SystemPowerOff,
    /// The guest asked the hypervisor for a reset.
    SystemReset,
    /// The guest reported to the hypervisor that it crashed.
    SystemCrash,
    /// The vCPU cannot go on.
    Failure(FailureDetail),
}

/// One vCPU. It belongs to one thread at a time.
#[derive(Debug)]
pub struct Vcpu {
    fd: VcpuFd,
    /// A second mapping of the shared page, for what kvm-ioctls does not tell.
    page: KvmRunWrapper,
    kick: Arc<VcpuKick>,
    /// Keeps RAM mapped as long as the vCPU may run.
    vm: Arc<Vm>,
}

impl Vcpu {
    /// Creates vCPU `index` of a guest with CPUs like `cpu`.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn new(vm: &Arc<Vm>, cpu: &GuestCpu, index: u32) -> Result<Self, KvmError> {
        let apic_id = cpu.topology().apic_id(index);
        let fd = vm
            .fd()
            .create_vcpu(u64::from(apic_id))
            .map_err(KvmError::ioctl("KVM_CREATE_VCPU"))?;
        setup::before_cpuid(&fd, vm, cpu)?;
        fd.set_cpuid2(&cpu.cpuid(index)?)
            .map_err(KvmError::ioctl("KVM_SET_CPUID2"))?;
        setup::after_cpuid(&fd, cpu)?;
        let page = |fd: &VcpuFd| {
            KvmRunWrapper::mmap_from_fd(fd, vm.fd().run_size()).map_err(KvmError::ioctl("mmap"))
        };
        Ok(Self {
            page: page(&fd)?,
            kick: Arc::new(VcpuKick::new(page(&fd)?)),
            fd,
            vm: Arc::clone(vm),
        })
    }

    /// What gets the vCPU out of the guest from another thread.
    #[must_use]
    pub fn kick_handle(&self) -> Arc<VcpuKick> {
        Arc::clone(&self.kick)
    }

    /// Enters the guest until something happens.
    ///
    /// # Errors
    /// When `KVM_RUN` fails in a way that no guest can cause.
    pub fn run(&mut self) -> Result<Exit<'_>, KvmError> {
        let exit = match self.fd.run() {
            Ok(exit) => exit,
            Err(errno) if matches!(errno.errno(), libc::EINTR | libc::EAGAIN) => {
                return Ok(Exit::Interrupted);
            }
            Err(errno) => return Err(KvmError::ioctl("KVM_RUN")(errno)),
        };
        Ok(match exit {
            VcpuExit::IoIn(port, data) => Exit::PortRead {
                port,
                width: port_width(&mut self.page),
                data,
            },
            VcpuExit::IoOut(port, data) => Exit::PortWrite {
                port,
                width: port_width(&mut self.page),
                data,
            },
            VcpuExit::MmioRead(address, data) => Exit::MmioRead { address, data },
            VcpuExit::MmioWrite(address, data) => Exit::MmioWrite { address, data },
            VcpuExit::Intr | VcpuExit::Hlt | VcpuExit::IrqWindowOpen => Exit::Interrupted,
            VcpuExit::Shutdown => Exit::Shutdown,
            VcpuExit::SystemEvent(kind, _) => system_event(kind),
            VcpuExit::Hyperv => {
                hyperv_exit::answer(&mut self.page);
                Exit::Answered
            }
            VcpuExit::FailEntry(reason, _) => Exit::Failure(FailureDetail::EntryFailed(reason)),
            VcpuExit::InternalError => {
                Exit::Failure(FailureDetail::InternalError(suberror(&mut self.page)))
            }
            other => Exit::Failure(FailureDetail::UnexpectedExit(exit_name(&other))),
        })
    }

    /// Tells a guest that has a kvmclock that it stands still until it next runs, so that its kernel takes
    /// the time in between for no lockup.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn note_pause(&self) -> Result<(), KvmError> {
        match self.fd.kvmclock_ctrl() {
            // The guest has no kvmclock, which has the bit for this.
            Err(errno) if errno.errno() == libc::EINVAL => Ok(()),
            result => result.map_err(KvmError::ioctl("KVM_KVMCLOCK_CTRL")),
        }
    }

    /// Where the guest is, for messages.
    #[must_use]
    pub fn instruction_pointer(&self) -> Option<u64> {
        self.fd.get_regs().ok().map(|registers| registers.rip)
    }

    /// Makes this the processor that starts, at `start`.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn start_at(&self, start: &StartState) -> Result<(), KvmError> {
        let mut special = self
            .fd
            .get_sregs()
            .map_err(KvmError::ioctl("KVM_GET_SREGS"))?;
        let data = segment(start.data);
        special.cs = segment(start.code);
        special.ds = data;
        special.es = data;
        special.fs = data;
        special.gs = data;
        special.ss = data;
        special.tr = segment(start.task);
        special.gdt = kvm_dtable {
            base: start.gdt.0,
            limit: start.gdt.1,
            ..kvm_dtable::default()
        };
        special.idt = kvm_dtable::default();
        special.cr0 = start.cr0;
        special.cr3 = start.cr3;
        special.cr4 = start.cr4;
        special.efer = start.efer;
        self.fd
            .set_sregs(&special)
            .map_err(KvmError::ioctl("KVM_SET_SREGS"))?;
        let registers = kvm_bindings::kvm_regs {
            rip: start.rip,
            rsp: start.rsp,
            rbp: start.rsp,
            rsi: start.rsi,
            rbx: start.rbx,
            // Bit 1 is always set (Intel SDM 1, 3.4.3).
            rflags: 2,
            ..kvm_bindings::kvm_regs::default()
        };
        self.fd
            .set_regs(&registers)
            .map_err(KvmError::ioctl("KVM_SET_REGS"))
    }

    pub(crate) fn fd(&self) -> &VcpuFd {
        &self.fd
    }

    pub(crate) fn vm(&self) -> &Vm {
        &self.vm
    }
}

fn port_width(page: &mut KvmRunWrapper) -> usize {
    // SAFETY: the last exit was KVM_EXIT_IO, so `io` is the member in use; all its bit patterns are
    // valid.
    let io = unsafe { page.as_mut_ref().__bindgen_anon_1.io };
    usize::from(io.size).clamp(1, 4)
}

fn suberror(page: &mut KvmRunWrapper) -> u32 {
    // SAFETY: the last exit was KVM_EXIT_INTERNAL_ERROR, so `internal` is the member in use; all its
    // bit patterns are valid.
    let internal = unsafe { page.as_mut_ref().__bindgen_anon_1.internal };
    internal.suberror
}

fn system_event(kind: u32) -> Exit<'static> {
    match kind {
        kvm_bindings::KVM_SYSTEM_EVENT_SHUTDOWN => Exit::SystemPowerOff,
        kvm_bindings::KVM_SYSTEM_EVENT_RESET => Exit::SystemReset,
        kvm_bindings::KVM_SYSTEM_EVENT_CRASH => Exit::SystemCrash,
        _ => Exit::Failure(FailureDetail::UnexpectedExit("KVM_EXIT_SYSTEM_EVENT")),
    }
}

fn exit_name(exit: &VcpuExit<'_>) -> &'static str {
    match exit {
        VcpuExit::Unknown => "KVM_EXIT_UNKNOWN",
        VcpuExit::Exception => "KVM_EXIT_EXCEPTION",
        VcpuExit::Hypercall(_) => "KVM_EXIT_HYPERCALL",
        VcpuExit::Debug(_) => "KVM_EXIT_DEBUG",
        VcpuExit::Nmi => "KVM_EXIT_NMI",
        VcpuExit::X86Rdmsr(_) => "KVM_EXIT_X86_RDMSR",
        VcpuExit::X86Wrmsr(_) => "KVM_EXIT_X86_WRMSR",
        VcpuExit::IoapicEoi(_) => "KVM_EXIT_IOAPIC_EOI",
        VcpuExit::MemoryFault { .. } => "KVM_EXIT_MEMORY_FAULT",
        _ => "an exit that was never enabled",
    }
}

fn segment(segment: Segment) -> kvm_segment {
    let flat_code = segment.code_or_data && !segment.long;
    kvm_segment {
        base: 0,
        limit: segment.limit,
        selector: segment.selector,
        type_: segment.kind,
        present: 1,
        dpl: 0,
        db: u8::from(flat_code),
        s: u8::from(segment.code_or_data),
        l: u8::from(segment.long),
        g: u8::from(segment.limit > 0xf_ffff),
        avl: 0,
        unusable: 0,
        padding: 0,
    }
}
