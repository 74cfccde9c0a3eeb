//! Where VMIs come from and where their status goes: gRPC and manifest directories.

#![forbid(unsafe_code)]
