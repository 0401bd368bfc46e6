//! `bankfull agent`: the remote side of an ssh session. The library speaks the protocol on standard
//! input and output, and reports errors to the client there. This module reports only errors that
//! occur before that, in one line that ssh passes to the user.

use crate::exit::Exit;
use crate::output::Output;
use bankfull::{AgentOptions, Bytes};
use std::ops::RangeInclusive;

/// Runs the session to its end.
pub(crate) fn run(max_memory: Option<Bytes>, data_ports: Option<RangeInclusive<u16>>) -> Exit {
    let mut options = AgentOptions::default();
    (options.max_memory, options.data_ports) = (max_memory, data_ports);
    match bankfull::run_agent(options) {
        Ok(ended_by) => ended_by.map_or(Exit::Done, Exit::from),
        Err(error) => {
            Output::standard().error(&error.to_string());
            Exit::from(error.kind())
        }
    }
}
