//! `bankfull agent`: the far side of an ssh session. The library speaks the protocol on standard
//! input and output; this only reports an error, in one line that ssh carries to the user.

use crate::exit::Exit;
use crate::output::Output;

/// Serves the session to its end.
pub(crate) fn run() -> Exit {
    match bankfull::run_agent() {
        Ok(()) => Exit::Done,
        Err(error) => {
            Output::standard().error(&error.to_string());
            Exit::from(error.kind())
        }
    }
}
