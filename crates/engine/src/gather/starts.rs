//! How many ssh sessions may be starting at a time. Servers turn away logins beyond a number; who
//! waits here, instead, is let in.

use crate::cancel::Cancel;
use crate::error::Error;
use crate::net::control::lock;
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Logins under way at one host. (ours: sshd drops some beyond 10, MaxStartups 10:30:100, and not
/// all of them need be ours)
const HOST_MAX: usize = 8;

/// Logins under way in all. (ours: each is a process that computes a key exchange here)
const ALL_MAX: usize = 32;

/// How often who waits looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// Counts starts under way.
#[derive(Debug, Default)]
pub(super) struct Starts {
    under_way: Mutex<UnderWay>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct UnderWay {
    all: usize,
    by_host: HashMap<String, usize>,
}

impl UnderWay {
    fn has_room(&self, host: &str) -> bool {
        self.all < ALL_MAX && self.by_host.get(host).is_none_or(|&count| count < HOST_MAX)
    }
}

impl Starts {
    /// Waits for a turn to start a session at `host`, which lasts as long as the value.
    ///
    /// # Errors
    /// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) when the user gives up first.
    pub(super) fn wait(&self, host: &str, cancel: &Cancel) -> Result<Start<'_>, Error> {
        let mut under_way = lock(&self.under_way);
        while !under_way.has_room(host) {
            if cancel.is_cancelled() {
                return Err(Error::interrupted());
            }
            let waited = self.changed.wait_timeout(under_way, LOOK);
            under_way = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        under_way.all += 1;
        *under_way.by_host.entry(host.to_owned()).or_default() += 1;
        Ok(Start { starts: self, host: host.to_owned() })
    }
}

/// A session that is being started.
#[derive(Debug)]
pub(super) struct Start<'a> {
    starts: &'a Starts,
    host: String,
}

impl Drop for Start<'_> {
    fn drop(&mut self) {
        let mut under_way = lock(&self.starts.under_way);
        under_way.all -= 1;
        if let Some(count) = under_way.by_host.get_mut(&self.host) {
            *count -= 1;
        }
        drop(under_way);
        self.starts.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_eight_starts_and_all_have_thirty_two() {
        let (starts, cancel) = (Starts::default(), Cancel::new());
        let start = |host: &str| starts.wait(host, &cancel).unwrap();
        let mut held: Vec<_> = (0..HOST_MAX).map(|_| start("a")).collect();
        assert!(!lock(&starts.under_way).has_room("a") && lock(&starts.under_way).has_room("b"));
        held.extend((HOST_MAX..ALL_MAX).map(|n| start(&n.to_string())));
        assert!(!lock(&starts.under_way).has_room("b"));
        held.truncate(HOST_MAX - 1);
        start("a");
    }

    #[test]
    fn who_waits_goes_when_another_is_done_or_when_it_is_given_up() {
        let (starts, cancel) = (Starts::default(), Cancel::new());
        let mut held: Vec<_> = (0..HOST_MAX).map(|_| starts.wait("a", &cancel).unwrap()).collect();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| starts.wait("a", &cancel).is_ok());
            held.pop();
            assert!(waiting.join().unwrap());
            held.push(starts.wait("a", &cancel).unwrap());
            let waiting = scope.spawn(|| starts.wait("a", &cancel).is_ok());
            cancel.cancel();
            assert!(!waiting.join().unwrap());
        });
    }
}
