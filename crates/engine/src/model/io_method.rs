//! Names of the methods that move data between a file and a socket.

use std::fmt;
use std::str::FromStr;

/// Method to move data between a file and a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IoMethod {
    /// Byte by byte, two calls for each. A baseline only.
    Stream,
    /// Blocks through a buffer.
    Buffered,
    /// Blocks of the mapped file (`mmap`).
    Mmap,
    /// The whole range at once, within the kernel (`sendfile`).
    SendFile,
    /// `sendfile` block by block; small blocks are joined up to 64 KiB per call.
    ZeroBuffer,
    /// Through a pipe, within the kernel (`splice`).
    Splice,
    /// Blocks through buffers that the kernel fills ahead (`io_uring`).
    IoUring,
    /// Blocks of the mapped file, sent without a copy if possible (`MSG_ZEROCOPY`).
    ZeroCopy,
}

impl IoMethod {
    /// All methods.
    pub const ALL: [Self; 8] = [
        Self::Stream,
        Self::Buffered,
        Self::Mmap,
        Self::SendFile,
        Self::ZeroBuffer,
        Self::Splice,
        Self::IoUring,
        Self::ZeroCopy,
    ];

    /// Name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Buffered => "buffered",
            Self::Mmap => "mmap",
            Self::SendFile => "sendfile",
            Self::ZeroBuffer => "zerobuffer",
            Self::Splice => "splice",
            Self::IoUring => "io_uring",
            Self::ZeroCopy => "zerocopy",
        }
    }

    /// True if copies may use it: not for methods that serve as baseline only.
    #[must_use]
    pub fn is_for_copies(self) -> bool {
        !matches!(self, Self::Stream | Self::ZeroCopy)
    }

    /// True if the data stays in the kernel, and so cannot be encrypted.
    #[must_use]
    pub fn stays_in_kernel(self) -> bool {
        matches!(self, Self::SendFile | Self::ZeroBuffer | Self::Splice)
    }
}

impl fmt::Display for IoMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for IoMethod {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|method| method.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("unknown I/O method {text:?}: choose {names}")
        })
    }
}
