//! Emulated networks without a network: links and TCP connections whose time is an argument.
//!
//! What lives here: the model of a link ([`Link`]: rate, delay, drop-tail buffer, loss, cross
//! traffic), named paths ([`presets`]), a TCP sender and receiver ([`tcp`]), and the world in which
//! flows share links while a controller watches and steers them ([`World`]). The same link runs in
//! virtual time and, driven by the lab, in real time between real hosts. `docs/sim.md` tells what
//! is modelled and what is not.
//!
//! What never lives here: a clock, a socket, a thread, a file. Time is a [`std::time::Duration`]
//! since some beginning and must not go backwards; randomness comes from a seed.
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
//! // A controller that knows the answer: every 10 ms it paces a little below the line.
//! world.run_with(Duration::from_secs(10), Duration::from_millis(10), |world| {
//!     world.set_pacing(flow, Some(Rate::from_bits_per_sec(95e6)));
//! });
//! assert!(world.report(flow).goodput > Rate::from_bits_per_sec(90e6));
//! ```

pub mod cross;
pub mod link;
pub mod loss;
pub mod presets;
pub mod tcp;
pub mod world;

pub use cross::Cross;
pub use link::{Burst, Counts, Link, LinkConfig, Run};
pub use loss::Loss;
pub use presets::PathConfig;
pub use world::{FlowConfig, World};
