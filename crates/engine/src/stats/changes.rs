//! Changes in the notation of rsync's `--itemize-changes`.

use crate::base::event::ItemizedChange;
use bankfull_proto::wire::control::{Change, ChangeAction, ChangedKind, Differences};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Columns of a deleted entry. (rsync(1), `--itemize-changes`)
const DELETING: &str = "*deleting  ";

/// Letters of the differences, in the order of their columns; `T` replaces `t`.
/// (rsync(1), `--itemize-changes`)
const LETTERS: [(Differences, char); 9] = [
    (Differences::CONTENT, 'c'),
    (Differences::SIZE, 's'),
    (Differences::TIME, 't'),
    (Differences::MODE, 'p'),
    (Differences::OWNER, 'o'),
    (Differences::GROUP, 'g'),
    (Differences::ATIME, 'u'),
    (Differences::ACL, 'a'),
    (Differences::XATTR, 'x'),
];

/// Returns the event of a change; `is_sent` if the user is the sender's.
pub(crate) fn event_of(change: Change, is_sent: bool) -> ItemizedChange {
    let columns = columns(&change, is_sent);
    let path_of = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
    let other = change.other.map(|other| path_of(other.0));
    let is_link = change.action == ChangeAction::Link;
    let (target, first_name) = if is_link { (None, other) } else { (other, None) };
    let is_dir = change.kind == ChangedKind::Dir;
    ItemizedChange { columns, path: path_of(change.path.0), is_dir, target, first_name }
}

fn columns(change: &Change, is_sent: bool) -> String {
    let action = match change.action {
        ChangeAction::Delete => return DELETING.to_owned(),
        ChangeAction::Update => '.',
        ChangeAction::Transfer if is_sent => '<',
        ChangeAction::Transfer => '>',
        ChangeAction::Create => 'c',
        ChangeAction::Link => 'h',
    };
    let kind = match change.kind {
        ChangedKind::File => 'f',
        ChangedKind::Dir => 'd',
        ChangedKind::Symlink => 'L',
        ChangedKind::Special => 'S',
        ChangedKind::Device => 'D',
    };
    let found = change.differences;
    let letter = |(difference, letter): (Differences, char)| match difference {
        Differences::TIME if found.has(Differences::TIME_OF_TRANSFER) => 'T',
        difference if found.has(difference) => letter,
        _ => '.',
    };
    let mut letters: String = LETTERS.into_iter().map(letter).collect();
    if found.has(Differences::NEW) {
        letters = "+".repeat(LETTERS.len());
    } else if change.action != ChangeAction::Transfer && letters.chars().all(|c| c == '.') {
        letters = " ".repeat(LETTERS.len());
    }
    format!("{action}{kind}{letters}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull_proto::wire::control::PathBytes;

    #[test]
    fn columns_are_those_of_rsync() {
        let all = |parts: &[Differences]| {
            parts.iter().fold(Differences::default(), |all, part| all.with(*part, true))
        };
        use ChangeAction::{Create, Delete, Link, Transfer, Update};
        use ChangedKind::{Device, Dir, File, Special, Symlink};
        use Differences as D;
        for (action, kind, parts, expected) in [
            (Transfer, File, &[D::NEW, D::SIZE][..], ">f+++++++++"),
            (Transfer, File, &[D::SIZE, D::TIME], ">f.st......"),
            (Transfer, File, &[D::CONTENT, D::SIZE, D::TIME_OF_TRANSFER], ">fcsT......"),
            (Transfer, File, &[], ">f........."),
            (Update, Dir, &[D::TIME, D::MODE, D::OWNER, D::GROUP], ".d..tpog..."),
            (Update, File, &[D::ATIME, D::ACL, D::XATTR], ".f......uax"),
            (Create, Symlink, &[D::CONTENT, D::TIME], "cLc.t......"),
            (Create, Special, &[D::NEW, D::CONTENT], "cS+++++++++"),
            (Create, Device, &[D::CONTENT], "cDc........"),
            (Link, File, &[], "hf         "),
            (Delete, Dir, &[], "*deleting  "),
        ] {
            let path = PathBytes(b"p".to_vec());
            let change = Change { path, kind, action, differences: all(parts), other: None };
            assert_eq!(event_of(change, false).columns, expected);
        }
    }

    #[test]
    fn sent_file_and_other_paths_have_their_fields() {
        let change = |action, kind| Change {
            path: PathBytes(b"p".to_vec()),
            kind,
            action,
            differences: Differences::NEW,
            other: Some(PathBytes(b"other".to_vec())),
        };
        let sent = event_of(change(ChangeAction::Transfer, ChangedKind::File), true);
        assert_eq!(sent.columns, "<f+++++++++");
        let symlink = event_of(change(ChangeAction::Create, ChangedKind::Symlink), true);
        assert_eq!((symlink.target, symlink.first_name), (Some("other".into()), None));
        let link = event_of(change(ChangeAction::Link, ChangedKind::Symlink), true);
        assert_eq!((link.target, link.first_name), (None, Some("other".into())));
    }
}
