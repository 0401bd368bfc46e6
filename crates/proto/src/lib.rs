//! The bankfull protocol: bytes ↔ messages, and the plan, resume and session rules as sans-IO
//! state machines.
//!
//! What lives here: the wire format ([`wire`]), its bounds ([`limits`]), how files are cut and
//! hashed ([`blocks`], [`mod@hash`]), what the receiver wants of a file ([`plan`]), the journal
//! that a
//! resume replays ([`journal`]), and the books both sides keep while a transfer runs ([`send`],
//! [`receive`], [`session`]).
//!
//! What never lives here: a socket, a file, a clock, a thread. Bytes come in and go out through
//! method calls; the lint table in this crate's `clippy.toml` refuses the rest.

pub mod blocks;
pub mod hash;
pub mod journal;
pub mod limits;
pub mod plan;
pub mod receive;
pub mod send;
pub mod session;
pub mod wire;
