//! Names that were requested of the sender, and their list, which it requests in parts.

use crate::base::sync::lock;
use bankfull_proto::names::NameList;
use bankfull_proto::wire::control::PathBytes;
use std::sync::{Arc, Mutex};

/// Names that were requested of the sender.
#[derive(Debug, Default)]
pub(super) struct RequestedNames {
    /// Empty if whole sources are requested.
    lists: Vec<Arc<NameList>>,
    /// Names of the list that were sent, or `None` at its end.
    sent: Mutex<Option<usize>>,
}

impl RequestedNames {
    pub(super) fn new(lists: Vec<Arc<NameList>>) -> Self {
        Self { lists, sent: Mutex::new(Some(0)) }
    }

    /// True if the entry of a path was requested.
    pub(super) fn admit(&self, path: &[u8], is_dir: bool) -> bool {
        self.lists.is_empty() || self.lists.iter().any(|list| list.admits(path, is_dir))
    }

    /// True if names beneath a directory were requested.
    pub(super) fn are_beneath(&self, path: &[u8]) -> bool {
        self.lists.iter().any(|list| list.is_above(path))
    }

    /// Returns the next part of the list; `None` if the sender must not request one.
    pub(super) fn next_part(&self) -> Option<Vec<PathBytes>> {
        let [list] = self.lists.as_slice() else { return None };
        let mut sent = lock(&self.sent);
        let from = (*sent)?;
        let part = list.part(from);
        *sent = (!part.is_empty()).then_some(from + part.len());
        Some(part)
    }
}
