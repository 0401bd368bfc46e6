//! Network simulator: links and TCP connections in virtual time.
//!
//! The crate has a link model ([`Link`]: rate, delay, drop-tail buffer, loss, cross traffic), named
//! paths ([`presets`]), a TCP sender and receiver ([`tcp`]), and a world in which flows share links
//! while a controller observes and tunes them ([`World`]), also as the engine does
//! ([`TunedTransfer`]). The same link model runs in virtual time and, driven by the lab, in real
//! time between real hosts. `docs/sim.md` states what is modelled and what is not.
//!
//! The crate uses no clock, socket, thread or file. Time is a [`std::time::Duration`] since an
//! arbitrary start and must not decrease; random numbers come from a seed.
//!
//! ```
//! use bankfull_control::{Bytes, Rate};
//! use bankfull_sim::{FlowConfig, PathConfig, World};
//! use std::time::Duration;
//!
//! let rate = Rate::from_bits_per_sec(100e6);
//! let path = PathConfig::new(rate, Duration::from_millis(20), Bytes(50_000));
//! let mut world = World::new(1);
//! let route = world.add_path(&path);
//! let flow = world.add_flow(FlowConfig::new(&route));
//! // An ideal controller: every 10 ms it sets a pacing rate slightly below the link rate.
//! world.run_with(Duration::from_secs(10), Duration::from_millis(10), |world| {
//!     world.set_pacing(flow, Some(Rate::from_bits_per_sec(95e6)));
//! });
//! assert!(world.report(flow).goodput > Rate::from_bits_per_sec(90e6));
//! ```

pub mod background;
pub mod cross_traffic;
pub mod link;
pub mod loss;
pub mod presets;
pub mod tcp;
pub mod tuned;
pub mod world;

pub use background::{Background, BackgroundReport};
pub use cross_traffic::CrossTraffic;
pub use link::{Arrival, Burst, Ecn, Link, LinkConfig, LinkCounts, Packets};
pub use loss::Loss;
pub use presets::PathConfig;
pub use tuned::{Trains, TunedTransfer, TunerConfig, TunerPacket};
pub use world::{FlowConfig, World};
