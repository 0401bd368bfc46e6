//! `bankfull agent`: the far side of an ssh session. The library speaks the protocol on standard
//! input and output, and tells the client there what goes wrong. Only what comes before the two can
//! talk is reported here, in one line that ssh carries to the user.

use crate::exit::Exit;
use crate::output::Output;
use bankfull::Bytes;

/// Serves the session to its end.
pub(crate) fn run(max_memory: Option<Bytes>) -> Exit {
    match bankfull::run_agent(max_memory) {
        Ok(ended_by) => ended_by.map_or(Exit::Done, Exit::from),
        Err(error) => {
            Output::standard().error(&error.to_string());
            Exit::from(error.kind())
        }
    }
}
