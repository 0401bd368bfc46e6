//! Standard input and output as operands.

use crate::flags::CpFlags;
use bankfull::{Error, ErrorKind};
use rustix::fs::{OFlags, fcntl_getfl, fstat, makedev};
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Operand for standard input and output.
pub(crate) const STANDARD_STREAM: &str = "-";

/// Path of standard output.
const STANDARD_OUTPUT: &str = "/dev/stdout";

/// True for a source that is read as a stream.
pub(crate) fn is_stream_source(source: &OsStr) -> bool {
    source == STANDARD_STREAM || is_pipe_of_process(Path::new(source))
}

/// Returns standard input, or a pipe of the shell, if it is the one source.
///
/// # Errors
/// `-` among other sources, standard input that is closed, and too many open files.
pub(crate) fn standard_input(flags: &CpFlags) -> Result<Option<File>, Error> {
    match flags.operands.sources.as_slice() {
        [only] if only == STANDARD_STREAM => open_stream(io::stdin(), "standard input").map(Some),
        [only] if is_pipe_of_process(Path::new(only)) => {
            let failed = |e| Error::local(format!("cannot read {}", only.display()), &e);
            File::open(only).map(Some).map_err(failed)
        }
        all if all.iter().any(|source| source == STANDARD_STREAM) => {
            let text = "standard input must be the only source: copy it alone, or write ./- for a \
                        file of that name";
            Err(Error::new(ErrorKind::Usage, text))
        }
        _ => Ok(None),
    }
}

/// True for the path of standard input, or of an open pipe as `<(command)` has.
fn is_pipe_of_process(path: &Path) -> bool {
    let is_input = |found: &Metadata| path == Path::new("/dev/stdin") && !found.is_dir();
    is_pipe_beneath(path, "/dev/stdin") || path.metadata().is_ok_and(|found| is_input(&found))
}

/// True for an open pipe, also that of a standard stream.
fn is_pipe_beneath(path: &Path, standard: &str) -> bool {
    let is_own = [standard, "/dev/fd", "/proc/self/fd"].iter().any(|place| path.starts_with(place));
    is_own && path.metadata().is_ok_and(|found| found.file_type().is_fifo())
}

/// True for a destination that is written as a stream: standard output, or a pipe as `>(command)`.
pub(crate) fn is_stream_destination(destination: &OsStr) -> bool {
    is_standard_output(destination) || is_pipe_beneath(Path::new(destination), STANDARD_OUTPUT)
}

fn is_standard_output(destination: &OsStr) -> bool {
    destination == STANDARD_STREAM || destination == STANDARD_OUTPUT
}

/// Returns standard output, or a pipe of the shell, if it is the destination.
///
/// # Errors
/// Standard output that is closed, a pipe that cannot be opened, and too many open files.
pub(crate) fn standard_output(flags: &CpFlags) -> Result<Option<File>, Error> {
    let destination = &flags.operands.destination;
    if is_standard_output(destination) {
        return open_stream(io::stdout(), "standard output").map(Some);
    }
    if !is_stream_destination(destination) {
        return Ok(None);
    }
    let failed = |e| Error::local(format!("cannot write to {}", destination.display()), &e);
    File::options().write(true).open(destination).map(Some).map_err(failed)
}

/// Duplicates a standard stream, which must not have been closed.
fn open_stream(stream: impl AsFd, name: &str) -> Result<File, Error> {
    if was_closed(&stream) {
        return Err(Error::new(ErrorKind::Local, format!("{name} is closed")));
    }
    let opened = stream.as_fd().try_clone_to_owned();
    opened.map(File::from).map_err(|e| Error::local(format!("cannot use {name}"), &e))
}

/// True for a standard descriptor that was closed when the process started.
///
/// Rust's runtime then opens `/dev/null` in its place, for reading and writing. A shell's
/// redirection opens it for one of them.
fn was_closed(standard: impl AsFd) -> bool {
    let is_null = fstat(&standard).is_ok_and(|stat| stat.st_rdev == makedev(1, 3));
    let flags = fcntl_getfl(&standard);
    is_null && flags.is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDWR)
}
