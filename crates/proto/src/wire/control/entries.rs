//! Announced tree: [`Entry`], [`Totals`], and [`Problem`] for parts that were left out.

use super::bytes::PathBytes;
use super::metadata::{ExtraMetadata, Xattr};
use crate::blocks::Layout;
use crate::error::WireError;
use crate::limits::{MAX_PACKED_FILE_BYTES, MAX_PATH_BYTES, XATTR_BYTES_PER_ENTRY};
use crate::wire::bounds::{at_most, check_name, printable};
use crate::wire::failure::Failure;
use minicbor::{Decode, Encode};

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum EntryKind {
    /// Regular file.
    #[n(0)]
    File,
    /// Directory.
    #[n(1)]
    Dir,
    /// Symbolic link, copied as a link.
    #[n(2)]
    Symlink,
    /// Another name of an entry that was announced before.
    #[n(3)]
    HardLink,
    /// FIFO, socket or device.
    #[n(4)]
    Special,
}

/// Entry of the tree. A directory precedes its contents.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Entry {
    /// Number of the entry; ascending within a session, from 1.
    #[n(0)]
    pub id: u64,
    /// Number of the parent directory; 0: the destination itself.
    #[n(1)]
    pub parent: u64,
    /// Name within the parent; empty only for the destination itself (parent 0, a directory).
    #[n(2)]
    #[cbor(with = "minicbor::bytes")]
    pub name: Vec<u8>,
    /// Kind of the entry.
    #[n(3)]
    pub kind: EntryKind,
    /// Permission bits, the low 12.
    #[n(4)]
    pub mode: u32,
    /// Modification time, seconds since 1970.
    #[n(5)]
    pub mtime_secs: i64,
    /// Modification time, nanoseconds of the second.
    #[n(6)]
    pub mtime_nanos: u32,
    /// Size in bytes; 0 for all but files.
    #[n(7)]
    pub size: u64,
    /// Opaque version of the source, from inode and change time. Changes with every write.
    #[n(8)]
    pub version: u64,
    /// Numeric owner.
    #[n(9)]
    pub uid: u32,
    /// Numeric group.
    #[n(10)]
    pub gid: u32,
    /// Block size in bytes; 0 for files that travel in packs.
    #[n(11)]
    pub block_bytes: u32,
    /// True if the source has holes.
    #[n(12)]
    pub sparse: bool,
    /// Target of a symlink.
    #[n(13)]
    #[cbor(with = "minicbor::bytes")]
    pub target: Vec<u8>,
    /// Further metadata.
    #[n(14)]
    pub extra: Option<Box<ExtraMetadata>>,
}

/// Totals of the walk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Totals {
    /// Regular files.
    #[n(0)]
    pub files: u64,
    /// Directories.
    #[n(1)]
    pub dirs: u64,
    /// Symlinks.
    #[n(2)]
    pub symlinks: u64,
    /// Bytes in regular files.
    #[n(3)]
    pub bytes: u64,
    /// Sockets, devices and FIFOs, which are skipped.
    #[n(4)]
    pub special_files_skipped: u64,
}

/// A path that was left out, or could not be set at the destination.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Problem {
    /// Path in the notation of the user.
    #[n(0)]
    pub path: PathBytes,
    /// Failure, or a warning.
    #[n(1)]
    pub failure: Failure,
}

impl Entry {
    /// Returns the extended attributes and access control lists.
    #[must_use]
    pub fn xattrs(&self) -> &[Xattr] {
        self.extra.as_deref().map_or(&[], ExtraMetadata::xattrs)
    }

    /// Returns the number of the inode, if it has several names.
    #[must_use]
    pub fn link_group(&self) -> Option<u64> {
        self.extra.as_deref()?.link_group
    }

    /// True if the size is an upper bound, and [`super::Message::FileEnd`] has the exact one.
    #[must_use]
    pub fn is_open_ended(&self) -> bool {
        self.extra.as_deref().is_some_and(|extra| extra.open_ended == Some(true))
    }

    /// Returns the size in bytes for totals: 0 while that of an open-ended file is not known.
    #[must_use]
    pub fn known_size(&self) -> u64 {
        if self.is_open_ended() { 0 } else { self.size }
    }

    /// Returns the outstanding entries, beyond one, that this one counts as.
    #[must_use]
    pub fn extra_weight(&self) -> usize {
        let bytes = self.extra.as_deref().map_or(0, ExtraMetadata::xattr_bytes);
        bytes / XATTR_BYTES_PER_ENTRY
    }

    pub(super) fn check(&self) -> Result<(), WireError> {
        let is_root = self.parent == 0 && self.kind == EntryKind::Dir && self.name.is_empty();
        if !is_root {
            check_name(&self.name)?;
        }
        at_most("a symlink target", self.target.len(), MAX_PATH_BYTES)?;
        if self.mtime_nanos >= 1_000_000_000 {
            return Err(WireError::OverLimit { what: "nanoseconds", max: 999_999_999 });
        }
        if self.target.contains(&0) {
            return Err(WireError::BadName(printable(&self.target)));
        }
        self.extra.iter().try_for_each(|extra| extra.check())?;
        let extra = self.extra.as_deref();
        if self.kind == EntryKind::HardLink && extra.is_none_or(|extra| extra.link_group.is_none())
            || (self.kind == EntryKind::Special) != extra.is_some_and(|e| e.special.is_some())
        {
            return Err(WireError::Unexpected("an entry without the metadata of its kind"));
        }
        if self.kind != EntryKind::Symlink && !self.target.is_empty() {
            return Err(WireError::Unexpected("a target of an entry that is no symlink"));
        }
        if self.kind == EntryKind::HardLink && !self.xattrs().is_empty() {
            return Err(WireError::Unexpected("attributes of a hard link"));
        }
        if self.is_open_ended() && (self.kind != EntryKind::File || self.block_bytes == 0) {
            return Err(WireError::Unexpected("an open-ended entry without blocks"));
        }
        match (self.kind, self.block_bytes) {
            (EntryKind::File, 0) => at_most(
                "a packed file",
                usize::try_from(self.size).unwrap_or(usize::MAX),
                MAX_PACKED_FILE_BYTES as usize,
            ),
            (EntryKind::File, block_bytes) => Layout::new(self.size, block_bytes).map(|_| ()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_ENTRIES_PER_BATCH;
    use crate::wire::control::Message;
    use crate::wire::control::tests::{entry, round_trip};

    #[test]
    fn entry_name_that_is_not_utf8_round_trips() {
        let message = Message::Entries(vec![entry()]);
        assert_eq!(round_trip(&message), Ok(message));
    }

    #[test]
    fn entry_name_outside_the_parent_is_refused() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"/etc", b"../x", b"a\0b", &[b'x'; 256]] {
            let message = Message::Entries(vec![Entry { name: bad.to_vec(), ..entry() }]);
            assert!(matches!(round_trip(&message), Err(WireError::BadName(_))), "{bad:?}");
        }
        let dir = Entry { name: vec![], kind: EntryKind::Dir, ..entry() };
        assert!(round_trip(&Message::Entries(vec![dir.clone()])).is_ok());
        let nested = Entry { parent: 3, ..dir };
        assert!(round_trip(&Message::Entries(vec![nested])).is_err());
    }

    #[test]
    fn entry_sizes_and_counts_over_limit_are_refused() {
        let packed = Entry { block_bytes: 0, ..entry() };
        assert!(round_trip(&Message::Entries(vec![packed])).is_err());
        let odd = Entry { block_bytes: 3 << 20, ..entry() };
        assert!(round_trip(&Message::Entries(vec![odd])).is_err());
        let huge = Entry { size: 1 << 62, ..entry() };
        assert!(round_trip(&Message::Entries(vec![huge])).is_err());
        let open_ended = ExtraMetadata { open_ended: Some(true), ..ExtraMetadata::default() };
        let open_ended = Entry { extra: Some(Box::new(open_ended)), ..entry() };
        assert!(round_trip(&Message::Entries(vec![open_ended.clone()])).is_ok());
        let packed = Entry { block_bytes: 0, size: 1, ..open_ended };
        assert!(round_trip(&Message::Entries(vec![packed])).is_err());
        let nanos = Entry { mtime_nanos: 1_000_000_000, ..entry() };
        assert!(round_trip(&Message::Entries(vec![nanos])).is_err());
        let small = Entry { name: b"x".to_vec(), ..entry() };
        assert!(round_trip(&Message::Entries(vec![small; MAX_ENTRIES_PER_BATCH + 1])).is_err());
    }
}
