//! Receive windows of TCP connections that other programs own: ICTCP for a whole host.
//!
//! A BPF program (`bpf/guard.bpf.c`) follows each connection below a cgroup, and applies the
//! windows that [`Guard`] orders, as clamps of the sockets. Nothing else in the programs or their
//! peers changes.
//!
//! Parts: requirements of the host (`requirements`), BPF programs and maps (`programs`), the state
//! that they publish (`slot`), network namespaces (`namespaces`), control groups (`cgroups`), the
//! guarded interface (`port`), connections and their owners (`connections`), windows (`holder`) and
//! their rollback (`rollback`), interfaces of guests (`guests`), first windows by the peer's
//! network (`networks`) and by service (`services`), the interval of ticks (`pace`), the main loop
//! (`guard`), and the removal of an earlier guard's programs (`release`).
//!
//! Out of scope: the decision about windows, which is `bankfull_control::ictcp`.

mod cgroups;
mod connections;
mod error;
mod guard;
mod guests;
mod holder;
mod namespaces;
mod networks;
mod pace;
mod port;
mod programs;
mod release;
mod requirements;
mod rollback;
mod services;
mod slot;

pub use cgroups::find_mount as find_cgroup_mount;
pub use connections::{Connection, Received, Standing};
pub use error::Error;
pub use guard::{Config, Event, Guard, Mode, Status};
pub use release::release;
