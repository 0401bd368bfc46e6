//! A source of unknown size: announced once it is long or at its end, and sent while it is read.

use super::Sender;
use super::announce::count_leaf;
use super::files::{Content, Place, SourceError, set_size};
use crate::base::error::{failure, problem_message};
use crate::file_io::spooled_input::{INPUT_NAME, SHORT_INPUT_BYTES, SpooledInput};
use crate::stats::counters::add;
use bankfull_proto::limits::{MAX_FILE_BLOCKS, MIN_BLOCK_BYTES};
use bankfull_proto::send::NextStep;
use bankfull_proto::wire::control::Message;
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Announces an input in a directory of the table, and reads it to its end.
pub(super) fn send_input(sender: &Sender<'_>, input: &Arc<SpooledInput>, dir: u64) {
    let is_stopped = || sender.session.is_stopped();
    let is_at_end = match input.read_to(SHORT_INPUT_BYTES, is_stopped) {
        Ok(Some(is_at_end)) => is_at_end,
        Ok(None) => return,
        Err(e) => {
            let failure = failure("cannot read the input", &e);
            let path = PathBuf::from(INPUT_NAME);
            sender.stats.file_failed(path.clone(), &failure);
            return sender.outbox.post(&problem_message(path, failure));
        }
    };
    let name = OsStr::new(INPUT_NAME);
    let mut entry = sender.files.describe_input(&input.stat, name);
    entry.version = input.version;
    match is_at_end {
        true => set_size(&mut entry, input.size()),
        false => {
            entry.size = MAX_FILE_BLOCKS * u64::from(MIN_BLOCK_BYTES);
            entry.block_bytes = MIN_BLOCK_BYTES;
            entry.extra.get_or_insert_default().open_ended = Some(true);
        }
    }
    count_leaf(sender.stats, &entry);
    let content = Some(Content::Spooled(Arc::clone(input)));
    let place = Place { dir, name, linked: None, inode: (0, 0), content };
    let id = sender.announce(entry, &place, 0);
    sender.announcer.flush();
    if !is_at_end && let Err(e) = send_blocks(sender, input, id) {
        let failure = failure("cannot read the input", &e);
        sender.on_source_error(id, SourceError::Failed(failure));
    }
}

/// Reads an input, and lets the streams send each block.
///
/// Ends if the file fails or the session stops.
fn send_blocks(sender: &Sender<'_>, input: &SpooledInput, id: u64) -> io::Result<()> {
    let Some(block) = sender.files.find(id).map(|file| u64::from(file.entry.block_bytes)) else {
        return Ok(());
    };
    // The user learns of a failure at once, although the input goes on.
    let is_stopped = || sender.session.is_stopped() || sender.files.find(id).is_none();
    let total = &sender.stats.counts.bytes_total;
    for index in 0.. {
        let (start, end) = (index * block, (index + 1) * block);
        let Some(is_at_end) = input.read_to(end, is_stopped)? else { return Ok(()) };
        let size = input.size();
        if start < size {
            if index == MAX_FILE_BLOCKS {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            if size < end {
                input.pad(end)?;
            }
            if !input.hold(index, block, is_stopped) {
                return Ok(());
            }
            add(total, size.min(end) - start);
            sender.queue.with_ledger(|ledger| ledger.on_block_available(id, index));
            sender.queue.notify_work();
        }
        if is_at_end && size <= end {
            sender.queue.with_ledger(|ledger| ledger.on_file_end(id, size));
            post_file_end(sender, id);
            return Ok(());
        }
    }
    Ok(())
}

/// Sends the size of an open-ended file that is wanted, once it is known.
pub(super) fn post_file_end(sender: &Sender<'_>, id: u64) {
    let next = sender.queue.with_ledger(|ledger| {
        let (end, next) = ledger.take_file_end(id)?;
        // Posted under the lock, so that the digest cannot overtake it.
        sender.outbox.post(&Message::FileEnd(end));
        Some(next)
    });
    if let (Some(NextStep::SendDigest), Some(file)) = (next, sender.files.find(id)) {
        sender.send_digest(&file);
    }
}
