//! Limit of concurrent ssh logins. sshd drops logins beyond its own limit; here they wait instead.

use crate::base::cancel::Cancel;
use crate::base::error::Error;
use crate::base::sync::lock;
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Concurrent logins per host. (chosen: sshd drops some beyond 10, MaxStartups 10:30:100, and other
/// clients may log in too)
const MAX_LOGINS_PER_HOST: usize = 8;

/// Concurrent logins in total. (chosen: each is a local process that computes a key exchange)
const MAX_LOGINS: usize = 32;

/// Interval at which a wait checks for cancellation.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Limits concurrent logins.
#[derive(Debug, Default)]
pub(crate) struct LoginLimiter {
    counts: Mutex<LoginCounts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LoginCounts {
    total: usize,
    by_host: HashMap<String, usize>,
}

impl LoginCounts {
    fn has_capacity(&self, host: &str) -> bool {
        self.total < MAX_LOGINS
            && self.by_host.get(host).is_none_or(|&count| count < MAX_LOGINS_PER_HOST)
    }
}

impl LoginLimiter {
    /// Waits for a permit to log in to `host`.
    ///
    /// # Errors
    /// [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) when the user cancels first.
    pub(crate) fn acquire(&self, host: &str, cancel: &Cancel) -> Result<LoginPermit<'_>, Error> {
        let mut counts = lock(&self.counts);
        while !counts.has_capacity(host) {
            if cancel.is_cancelled() {
                return Err(Error::interrupted());
            }
            let waited = self.changed.wait_timeout(counts, CANCEL_POLL_INTERVAL);
            counts = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        counts.total += 1;
        *counts.by_host.entry(host.to_owned()).or_default() += 1;
        Ok(LoginPermit { limiter: self, host: host.to_owned() })
    }
}

/// Permit for one login, held while it is in progress.
#[derive(Debug)]
pub(crate) struct LoginPermit<'a> {
    limiter: &'a LoginLimiter,
    host: String,
}

impl Drop for LoginPermit<'_> {
    fn drop(&mut self) {
        let mut counts = lock(&self.limiter.counts);
        counts.total -= 1;
        if let Some(count) = counts.by_host.get_mut(&self.host) {
            *count -= 1;
        }
        drop(counts);
        self.limiter.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_limited_per_host_and_in_total() {
        let (limiter, cancel) = (LoginLimiter::default(), Cancel::new());
        let start = |host: &str| limiter.acquire(host, &cancel).unwrap();
        let mut held: Vec<_> = (0..MAX_LOGINS_PER_HOST).map(|_| start("a")).collect();
        assert!(
            !lock(&limiter.counts).has_capacity("a") && lock(&limiter.counts).has_capacity("b")
        );
        held.extend((MAX_LOGINS_PER_HOST..MAX_LOGINS).map(|n| start(&n.to_string())));
        assert!(!lock(&limiter.counts).has_capacity("b"));
        held.truncate(MAX_LOGINS_PER_HOST - 1);
        start("a");
    }

    #[test]
    fn login_wait_ends_on_release_or_cancel() {
        let (limiter, cancel) = (LoginLimiter::default(), Cancel::new());
        let mut held: Vec<_> =
            (0..MAX_LOGINS_PER_HOST).map(|_| limiter.acquire("a", &cancel).unwrap()).collect();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| limiter.acquire("a", &cancel).is_ok());
            held.pop();
            assert!(waiting.join().unwrap());
            held.push(limiter.acquire("a", &cancel).unwrap());
            let waiting = scope.spawn(|| limiter.acquire("a", &cancel).is_ok());
            cancel.cancel();
            assert!(!waiting.join().unwrap());
        });
    }
}
