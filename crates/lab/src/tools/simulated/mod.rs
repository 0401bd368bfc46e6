//! Simulations in virtual time.

mod flows;
pub(super) mod model;
pub(super) mod ns3;
pub(super) mod tuned;
