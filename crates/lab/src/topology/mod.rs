//! Emulated networks: hosts in namespaces, the emulator between them, and the machine below.

pub mod emulator;
pub mod flows;
pub mod hosts;
pub mod machine;
pub mod network;
