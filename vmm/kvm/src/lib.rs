//! Safe wrappers of the KVM ioctls: VM, vCPUs, memslots, interrupt routing.
