//! Standard output and standard error as explicit handles, which tests replace by buffers.

use super::text::printable_text;
use std::io::{Error, ErrorKind, Write};

/// Destination of text. A closed pipe (`| head`) is not an error: further text is dropped.
pub(crate) struct Output {
    out: Handle,
    err: Handle,
}

impl Output {
    /// Uses the standard streams of this process.
    pub(crate) fn standard() -> Self {
        Self::new(Box::new(std::io::stdout()), Box::new(std::io::stderr()))
    }

    /// Uses standard error for everything: standard output has the content of a file.
    pub(crate) fn beside_content() -> Self {
        Self::new(Box::new(std::io::stderr()), Box::new(std::io::stderr()))
    }

    /// Uses any two streams.
    pub(crate) fn new(out: Box<dyn Write + Send>, err: Box<dyn Write + Send>) -> Self {
        Self { out: Handle::new(out), err: Handle::new(err) }
    }

    /// Writes data to standard output and flushes it.
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

    /// Writes an error to standard error, always in one line.
    pub(crate) fn error(&mut self, message: &str) {
        self.message(&format!("bankfull: {}", printable_text(message)));
    }

    /// True once the reader of standard output is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.out.writer.is_none()
    }

    /// Returns the reason why standard output could not be written, if any.
    pub(crate) fn failure(&self) -> Option<String> {
        self.out.failure.as_ref().map(failure_text)
    }
}

/// Returns the message of a failure of standard output.
pub(super) fn failure_text(failure: &Error) -> String {
    bankfull::Error::local("cannot write to standard output", failure).to_string()
}

/// Stream that is not used again after a failure.
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

    /// Stream with readable contents.
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

    /// Creates an output into two buffers: standard output and standard error.
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
    fn broken_pipe_is_not_a_failure_but_full_disk_is() {
        assert_eq!(failure(ErrorKind::BrokenPipe), None);
        assert!(failure(ErrorKind::StorageFull).is_some());
    }

    #[test]
    fn error_is_one_line() {
        let (mut output, _, err) = testing::buffers();
        output.error("a\nb");
        assert_eq!(err.text(), "bankfull: a\\nb\n");
    }
}
