//! Safe wrappers of system interfaces: tap ioctls, descriptor passing, process hardening.
