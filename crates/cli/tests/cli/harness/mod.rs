//! Shared parts of the tests of whole transfers: the program with a time limit, daemons, ssh
//! servers, trees and their comparison, a faulty proxy, and faulty peers.
//!
//! The harness arranges and observes; the tests hold the expectations.

mod compare;
mod daemon;
mod disk;
mod journals;
mod many;
mod peer;
mod proxy;
mod relay;
mod remote;
mod rng;
mod run;
mod scratch;
mod ssh;
mod tree;

pub(crate) use compare::{assert_same, differences, snapshot};
pub(crate) use daemon::Daemon;
pub(crate) use disk::Disk;
pub(crate) use journals::{JournalFile, journals, litter};
pub(crate) use many::Many;
pub(crate) use peer::{
    FakeServer, Peer, TlsServer, Wire, base, below, entry, hello, open_push, open_push_of,
    polled_tls_to, welcome, welcome_of_agent,
};
pub(crate) use proxy::Proxy;
pub(crate) use relay::Relay;
pub(crate) use remote::{
    connect_remote, is_over_path, patience, remote_address, remote_host, remote_url,
};
pub(crate) use rng::{Rng, seed};
pub(crate) use run::{
    Done, Running, cp, gather, ls, probe, run, run_for, run_there, script, unprivileged,
    unprivileged_within, wait_until,
};
pub(crate) use scratch::{Mount, Scratch, is_root};
pub(crate) use ssh::SshServer;
pub(crate) use tree::{Tree, fill, set_mode, set_mtime, write_file};
