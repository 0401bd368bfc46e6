//! The bankfull protocol without I/O: wire format, block layout, ledgers of both sides, journal.
//!
//! Modules, each using only those before it: [`limits`], [`error`], [`blocks`], [`mod@hash`],
//! [`wire`] (messages and frames), [`journal`] (records of a part file), [`part`] (its life),
//! [`sources`] and [`names`] (what was requested), [`filter`] and [`selection`] (what is left
//! out), [`chmod`], [`account_map`] and [`acl`] (changes of modes, owners and groups), [`plan`]
//! (action for an announced file), `open_dirs` (directories of the sender), `work` (for its
//! streams), [`send`] and [`receive`] (the ledgers), [`session`] (message order).
//!
//! Bytes enter and leave through method calls, and time is an argument. Sockets, files, clocks and
//! threads are refused by the lint table in `clippy.toml`.

pub mod account_map;
pub mod acl;
pub mod blocks;
pub mod chmod;
pub mod error;
pub mod filter;
pub mod globs;
pub mod hash;
pub mod journal;
pub mod limits;
pub mod names;
mod open_dirs;
mod outgoing;
pub mod part;
pub mod plan;
pub mod receive;
pub mod selection;
pub mod send;
pub mod session;
pub mod sources;
pub mod wire;
mod work;
