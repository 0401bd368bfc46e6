//! Further names of an inode that the receiver wants with their content: it left out the first one.

use super::Sender;
use super::announce::count_leaf;
use super::files::SourceFile;
use crate::base::error::failure;
use bankfull_proto::wire::control::{Aborted, Cause, Entry, EntryKind, Failure, Message};
use bankfull_sys::FileKind;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

/// Withdraws a further name, and announces it as the first one of its inode.
///
/// If it cannot be read any more, the receiver takes the next name.
pub(super) fn announce_with_content(sender: &Sender<'_>, file: &SourceFile) {
    let id = file.entry.id;
    let path = sender.files.path(file);
    let described = describe(sender, file);
    let failure = match &described {
        Ok(_) => Failure::new(Cause::SourceChanged, "announced with its content"),
        Err(e) => failure(format!("cannot read {}", path.display()), e),
    };
    let will_retry = described.is_ok();
    sender.outbox.post(&Message::Aborted(Aborted {
        file: id,
        failure: failure.clone(),
        will_retry,
    }));
    match described {
        Ok(entry) => {
            sender.stats.counts.hard_links.fetch_sub(1, Ordering::Relaxed);
            count_leaf(sender.stats, &entry);
            sender.announce(entry, &file.place(), 0);
            sender.announcer.flush();
        }
        Err(_) => sender.stats.file_failed(path, &failure),
    }
    sender.forget(id);
    // Last, so that the session never looks complete in between.
    sender.queue.with_ledger(|ledger| ledger.drop_file(id));
    sender.queue.notify_completion();
}

/// Describes a name with its content.
fn describe(sender: &Sender<'_>, file: &SourceFile) -> io::Result<Entry> {
    let dir = sender.files.dir_of(file)?;
    let stat = dir.stat(&file.name)?;
    if (stat.dev, stat.ino) != file.inode || stat.kind == FileKind::Dir {
        return Err(io::Error::other("it was replaced meanwhile"));
    }
    let before = &file.entry;
    let place = (before.parent, OsStr::from_bytes(&before.name));
    let mut entry = sender.files.describe((&dir, &file.name), &stat, place)?;
    if entry.kind == EntryKind::Symlink {
        entry.target = dir.read_link(&file.name)?.as_bytes().to_vec();
    }
    entry.extra.get_or_insert_default().link_group = before.link_group();
    Ok(entry)
}
