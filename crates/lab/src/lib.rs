//! The lab: emulated networks on one machine, for any program that runs on Linux.
//!
//! Modules from the lowest to the highest, each using only those before it: [`base`] (errors,
//! signals, deadlines), [`model`] (plain data), [`topology`] (hosts in network namespaces, the
//! emulator between them), [`tools`] (programs and generators that are compared), [`scenario`]
//! (their description in files), [`run`] (execution and analysis), [`report`] (tables and the HTML
//! report), [`commands`] (the command line).
//!
//! The model of a link lives in `bankfull-sim`. The lab runs bankfull like any other program.

pub mod base;
pub mod commands;
pub mod model;
pub mod report;
pub mod run;
pub mod scenario;
pub mod tools;
pub mod topology;
