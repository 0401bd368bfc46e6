//! Standard output and standard error as explicit handles, so that tests can pass buffers.

use super::text::printable_text;
use std::io::{Error, ErrorKind, Write};

/// Where text goes. A reader that went away (`| head`) is no error: what it would have read is
/// dropped.
pub(crate) struct Output {
    out: Handle,
    err: Handle,
}

impl Output {
    /// The standard streams of this process.
    pub(crate) fn standard() -> Self {
        Self::new(Box::new(std::io::stdout()), Box::new(std::io::stderr()))
    }

    /// Any two streams.
    pub(crate) fn new(out: Box<dyn Write + Send>, err: Box<dyn Write + Send>) -> Self {
        Self { out: Handle::new(out), err: Handle::new(err) }
    }

    /// Writes data to standard output, at once.
    pub(crate) fn data(&mut self, data: &[u8]) {
        self.out.write(data);
    }

    /// Writes a line to standard output.
    pub(crate) fn data_line(&mut self, line: &str) {
        self.out.write(format!("{line}\n").as_bytes());
    }

    /// Writes a line to standard error.
    pub(crate) fn message(&mut self, line: &str) {
        self.err.write(format!("{line}\n").as_bytes());
    }

    /// Writes an error to standard error, in one line whatever it contains.
    pub(crate) fn error(&mut self, message: &str) {
        self.message(&format!("bankfull: {}", printable_text(message)));
    }

    /// That standard output could not be written, and why, if so.
    pub(crate) fn failure(&self) -> Option<String> {
        let said = |e: &Error| bankfull::Error::local("standard output cannot be written", e);
        self.out.failure.as_ref().map(|e| said(e).to_string())
    }
}

/// A stream that is left alone after it failed once.
struct Handle {
    writer: Option<Box<dyn Write + Send>>,
    failure: Option<Error>,
}

impl Handle {
    fn new(writer: Box<dyn Write + Send>) -> Self {
        Self { writer: Some(writer), failure: None }
    }

    fn write(&mut self, data: &[u8]) {
        let Some(writer) = &mut self.writer else { return };
        if let Err(error) = writer.write_all(data).and_then(|()| writer.flush()) {
            self.writer = None;
            self.failure = Some(error).filter(|e| e.kind() != ErrorKind::BrokenPipe);
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::Output;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    /// A stream whose content can be looked at.
    #[derive(Clone, Default)]
    pub(crate) struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Buffer {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }

        pub(crate) fn lines(&self) -> Vec<String> {
            self.text().lines().map(str::to_owned).collect()
        }
    }

    impl Write for Buffer {
        fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(data);
            Ok(data.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Handles into two buffers: standard output and standard error.
    pub(crate) fn buffers() -> (Output, Buffer, Buffer) {
        let (out, err) = (Buffer::default(), Buffer::default());
        (Output::new(Box::new(out.clone()), Box::new(err.clone())), out, err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn failure(kind: ErrorKind) -> Option<String> {
        let mut output = Output::new(Box::new(Failing(kind)), Box::new(std::io::sink()));
        output.data_line("x");
        output.data_line("y");
        output.failure()
    }

    #[test]
    fn a_broken_pipe_is_no_failure_and_a_full_disk_is_one() {
        assert_eq!(failure(ErrorKind::BrokenPipe), None);
        assert!(failure(ErrorKind::StorageFull).is_some());
    }

    #[test]
    fn an_error_is_one_line() {
        let (mut output, _, err) = testing::buffers();
        output.error("a\nb");
        assert_eq!(err.text(), "bankfull: a\\nb\n");
    }
}
