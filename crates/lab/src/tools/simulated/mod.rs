//! Simulations in virtual time.

pub(super) mod model;
pub(super) mod ns3;
