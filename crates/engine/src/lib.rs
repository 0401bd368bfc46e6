//! Library of Bankfull, a bulk data mover for files and trees. Copies between hosts over several
//! TCP or QUIC streams, verifies every block, and resumes interrupted copies.
//!
//! ```no_run
//! use bankfull::{Cancel, Location, NoEvents, Transfer};
//!
//! let source = Location::parse("./data".as_ref())?;
//! let destination = Location::parse("bankfull://store.example/incoming/".as_ref())?;
//! let summary = Transfer::new(vec![source], destination)
//!     .streams(4)
//!     .run(&NoEvents, &Cancel::new())?;
//! println!("{} files, {}, limited by {}", summary.files, summary.goodput(), summary.limited_by);
//! # Ok::<(), bankfull::Error>(())
//! ```
//!
//! [`Transfer`] copies, [`Gather`] copies from many hosts at once, [`Server`] is the daemon,
//! [`run_agent`] is the agent of an ssh session. All report events to an [`EventSink`] (or
//! [`GatherSink`]) and stop on [`Cancel`]. No third-party type is part of this interface.
//!
//! This crate drives real sockets and files with the state machines of `bankfull-proto` and
//! `bankfull-control`. Flags and terminals are in `bankfull-cli`, system calls in `bankfull-sys`,
//! decisions in `bankfull-control`.

mod api;
mod base;
mod file_io;
mod model;
mod routes;
mod run;
mod session;
mod stats;
mod transfer;
mod transport;
mod tuning;

/// Ends the process at once, without running exit handlers. Threads may still be connecting for a
/// transfer that has ended; the TLS library's cleanup at a normal exit would make them abort the
/// process.
pub use bankfull_sys::{
    RetryingAllocator, exit_now, inherited_listener, is_clock_synchronized, kernel_version,
    raise_open_file_limit, use_few_arenas,
};

pub use api::agent::{AgentOptions, run_agent, run_agent_over};
pub use api::delete::Delete;
pub use api::earlier::Backup;
pub use api::filters::{FilterRule, Filters};
pub use api::gather::layout::Layout;
pub use api::gather::rounds::{Round, Rounds};
pub use api::gather::{Gather, GatherSink, GatherSummary};
pub use api::host::{RememberedPath, max_inflight, remembered_paths};
pub use api::limits::ServerLimits;
pub use api::list::Listing;
pub use api::probe::{DEFAULT_PROBE_DURATION, Probe, ProbeResult};
pub use api::selection::{Comparison, FileList, Selection};
pub use api::server::Server;
pub use api::transfer::Transfer;
pub use bankfull_control::{Bytes, Rate, Schedule, StageTimes, UnitError};
pub use base::cancel::Cancel;
pub use base::error::{Error, ErrorKind, is_terminal_control};
pub use base::event::{
    BufferLimit, ClientRequest, Controller, Event, EventSink, ItemizedChange, ListedEntry,
    ListedKind, NoEvents, Outcome, Progress, ReceiveBufferKind, Route, Sample, Summary,
    TuningDecision,
};
pub use base::event_log::{EVENT_LOG_TARGET, STARTUP_LOG_TARGET};
pub use base::failure_fold::{FailureFold, FoldedFailures};
pub use base::location::{DEFAULT_PORT, Location};
pub use model::access::{
    Credential, Grant, Network, Quota, Share, TokenHash, check_prefix, is_plain_name, new_token,
};
pub use model::client_key::{ClientKey, ClientKeyPair};
pub use model::io_method::IoMethod;
pub use model::merge_conflicts::Merge;
pub use model::metadata::{Metadata, MetadataKind};
pub use model::options::{
    Access, CertificateFiles, DEFAULT_RETRY_FOR, DEFAULT_STREAMS, DEFAULT_TIMEOUT, DaemonOptions,
    DirectIo, Fingerprint, Fsync, MIN_MEMORY_LIMIT, ServeOptions, Served, SshOptions, Transport,
    Tune, default_state_dir,
};
pub use model::overrides::{MAX_BUFFER, MIN_BUFFER, MIN_RATE_LIMIT, is_valid_block_size};
pub use stats::server_status::{DirectionStatus, ServerStatus};
pub use transport::identity::{certificate_fingerprint, server_fingerprint};
pub use transport::udp_receive_buffer;
