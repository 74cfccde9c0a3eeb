//! Request numbers of `ioctl(2)` on x86-64, as `linux/kvm.h`, `linux/vhost.h`, `linux/if_tun.h`,
//! `linux/fs.h` and `asm/ioctls.h` compute them.

/// Which argument of `ioctl` has the request.
pub const REQUEST: u8 = 1;

macro_rules! numbers {
    ($($name:ident = $number:literal),* $(,)?) => {
        $(#[allow(missing_docs, reason = "the names are the kernel's")]
        pub const $name: u32 = $number;)*
    };
}

numbers! {
    // The system's descriptor.
    KVM_GET_API_VERSION = 0x0000_ae00,
    KVM_CREATE_VM = 0x0000_ae01,
    KVM_GET_MSR_INDEX_LIST = 0xc004_ae02,
    KVM_CHECK_EXTENSION = 0x0000_ae03,
    KVM_GET_VCPU_MMAP_SIZE = 0x0000_ae04,
    KVM_GET_SUPPORTED_CPUID = 0xc008_ae05,
    KVM_GET_SUPPORTED_HV_CPUID = 0xc008_aec1,
    // A VM's.
    KVM_CREATE_VCPU = 0x0000_ae41,
    KVM_SET_USER_MEMORY_REGION = 0x4020_ae46,
    KVM_SET_TSS_ADDR = 0x0000_ae47,
    KVM_SET_IDENTITY_MAP_ADDR = 0x4008_ae48,
    KVM_CREATE_IRQCHIP = 0x0000_ae60,
    KVM_IRQ_LINE = 0x4008_ae61,
    KVM_GET_IRQCHIP = 0xc208_ae62,
    KVM_SET_IRQCHIP = 0x8208_ae63,
    KVM_REGISTER_COALESCED_MMIO = 0x4010_ae67,
    KVM_UNREGISTER_COALESCED_MMIO = 0x4010_ae68,
    KVM_SET_GSI_ROUTING = 0x4008_ae6a,
    KVM_REINJECT_CONTROL = 0x0000_ae71,
    KVM_IRQFD = 0x4020_ae76,
    KVM_CREATE_PIT2 = 0x4040_ae77,
    KVM_IOEVENTFD = 0x4040_ae79,
    KVM_SET_CLOCK = 0x4030_ae7b,
    KVM_GET_CLOCK = 0x8030_ae7c,
    KVM_GET_PIT2 = 0x8070_ae9f,
    KVM_SET_PIT2 = 0x4070_aea0,
    KVM_ENABLE_CAP = 0x4068_aea3,
    // A vCPU's.
    KVM_RUN = 0x0000_ae80,
    KVM_GET_REGS = 0x8090_ae81,
    KVM_SET_REGS = 0x4090_ae82,
    KVM_GET_SREGS = 0x8138_ae83,
    KVM_SET_SREGS = 0x4138_ae84,
    KVM_GET_MSRS = 0xc008_ae88,
    KVM_SET_MSRS = 0x4008_ae89,
    KVM_GET_FPU = 0x81a0_ae8c,
    KVM_SET_FPU = 0x41a0_ae8d,
    KVM_GET_LAPIC = 0x8400_ae8e,
    KVM_SET_LAPIC = 0x4400_ae8f,
    KVM_SET_CPUID2 = 0x4008_ae90,
    KVM_GET_MP_STATE = 0x8004_ae98,
    KVM_SET_MP_STATE = 0x4004_ae99,
    KVM_GET_VCPU_EVENTS = 0x8040_ae9f,
    KVM_SET_VCPU_EVENTS = 0x4040_aea0,
    KVM_GET_DEBUGREGS = 0x8080_aea1,
    KVM_SET_DEBUGREGS = 0x4080_aea2,
    KVM_SET_TSC_KHZ = 0x0000_aea2,
    KVM_GET_TSC_KHZ = 0x0000_aea3,
    KVM_GET_XSAVE = 0x9000_aea4,
    KVM_SET_XSAVE = 0x5000_aea5,
    KVM_GET_XCRS = 0x8188_aea6,
    KVM_SET_XCRS = 0x4188_aea7,
    KVM_KVMCLOCK_CTRL = 0x0000_aead,
    KVM_GET_NESTED_STATE = 0xc080_aebe,
    KVM_SET_NESTED_STATE = 0x4080_aebf,
    KVM_GET_XSAVE2 = 0x9000_aecf,
    // Block devices behind disks.
    BLKSSZGET = 0x0000_1268,
    BLKDISCARD = 0x0000_1277,
    BLKPBSZGET = 0x0000_127b,
    BLKZEROOUT = 0x0000_127f,
    // Taps.
    TUNSETOFFLOAD = 0x4004_54d0,
    TUNGETIFF = 0x8004_54d2,
    TUNSETVNETHDRSZ = 0x4004_54d8,
    TUNSETQUEUE = 0x4004_54d9,
    // vhost-net.
    VHOST_GET_FEATURES = 0x8008_af00,
    VHOST_SET_FEATURES = 0x4008_af00,
    VHOST_SET_OWNER = 0x0000_af01,
    VHOST_SET_MEM_TABLE = 0x4008_af03,
    VHOST_SET_LOG_BASE = 0x4008_af04,
    VHOST_SET_VRING_NUM = 0x4008_af10,
    VHOST_SET_VRING_ADDR = 0x4028_af11,
    VHOST_SET_VRING_BASE = 0x4008_af12,
    VHOST_GET_VRING_BASE = 0xc008_af12,
    VHOST_SET_VRING_KICK = 0x4008_af20,
    VHOST_SET_VRING_CALL = 0x4008_af21,
    VHOST_SET_VRING_ERR = 0x4008_af22,
    VHOST_NET_SET_BACKEND = 0x4008_af30,
    // Any descriptor.
    FIONBIO = 0x0000_5421,
}
