//! Reads of a file that are on their way while others are made, by a thread for each: in the place
//! of `io_uring` where the kernel, or a container, does not let this process have it.

use super::uninterrupted;
use bankfull_sys::Pages;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

/// Threads that read in this process, at most, whatever it has of connections: who comes later
/// reads through the page cache. (ours: those of 16 connections, as many as a copy begins with
/// on a long path)
static THREADS: Budget = Budget::new(80);

/// Buffers of one size, each with a thread that fills it.
pub(super) struct Workers {
    all: Vec<Worker>,
    _seats: Seats<'static>,
}

/// How many there may be of something, and how many there are.
struct Budget {
    most: usize,
    taken: AtomicUsize,
}

impl Budget {
    const fn new(most: usize) -> Self {
        Self { most, taken: AtomicUsize::new(0) }
    }

    /// So many at once, or none.
    fn take(&self, count: usize) -> Option<Seats<'_>> {
        let add = |taken: usize| taken.checked_add(count).filter(|&sum| sum <= self.most);
        let took = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        took.is_ok().then(|| Seats { budget: self, count })
    }
}

/// What was taken, given back when it is dropped.
struct Seats<'b> {
    budget: &'b Budget,
    count: usize,
}

impl Drop for Seats<'_> {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.count, Ordering::Relaxed);
    }
}

struct Worker {
    /// A buffer that no read is filling, and how many bytes of it were read last.
    filled: Option<(Pages, usize)>,
    /// Nobody takes them any more once it is gone.
    jobs: Option<Sender<Job>>,
    done: Receiver<(Pages, io::Result<usize>)>,
    thread: Option<JoinHandle<()>>,
}

struct Job {
    file: Arc<File>,
    offset: u64,
    len: usize,
    pages: Pages,
}

impl Workers {
    /// So many buffers of so many bytes, at pages' begins.
    ///
    /// # Errors
    /// `ResourceBusy` where this process has enough of such threads; what the kernel reports.
    pub(super) fn new(count: usize, bytes: usize) -> io::Result<Self> {
        let seats = THREADS.take(count).ok_or(io::ErrorKind::ResourceBusy)?;
        let all = (0..count).map(|_| Worker::new(bytes)).collect::<io::Result<_>>()?;
        Ok(Self { all, _seats: seats })
    }

    /// Begins to fill a buffer with `len` bytes of a file from `offset` on; what it held is gone.
    ///
    /// # Errors
    /// `InvalidInput` where there is no such buffer, or it is too small, or still being filled.
    pub(super) fn begin(
        &mut self,
        index: usize,
        file: &Arc<File>,
        offset: u64,
        len: usize,
    ) -> io::Result<()> {
        let worker = self.all.get_mut(index).ok_or(io::ErrorKind::InvalidInput)?;
        let file = Arc::clone(file);
        let fits = worker.filled.take_if(|(pages, _)| len <= pages.len());
        let (pages, _) = fits.ok_or(io::ErrorKind::InvalidInput)?;
        let sent = worker.jobs.as_ref().map(|jobs| jobs.send(Job { file, offset, len, pages }));
        sent.and_then(Result::ok).ok_or_else(has_ended)
    }

    /// Waits until a buffer is filled, and hands out what came: less than asked for where the file
    /// has ended. An error is told once, and nothing came then.
    pub(super) fn bytes(&mut self, index: usize) -> io::Result<&[u8]> {
        let worker = self.all.get_mut(index).ok_or(io::ErrorKind::InvalidInput)?;
        if worker.filled.is_none() {
            let (pages, came) = worker.done.recv().map_err(|_| has_ended())?;
            worker.filled = Some((pages, *came.as_ref().unwrap_or(&0)));
            came?;
        }
        Ok(worker.filled.as_ref().map_or(&[], |(pages, came)| &pages[..*came]))
    }
}

impl Worker {
    fn new(bytes: usize) -> io::Result<Self> {
        let (jobs, to_do) = channel();
        let (tell, done) = channel();
        let work = move || {
            for Job { file, offset, len, mut pages } in to_do {
                let came = uninterrupted(|| file.read_at(&mut pages[..len], offset));
                drop(file);
                if tell.send((pages, came)).is_err() {
                    return;
                }
            }
        };
        let filled = Some((Pages::new(bytes)?, 0));
        let thread = thread::Builder::new().name("read".to_owned()).spawn(work)?;
        Ok(Self { filled, jobs: Some(jobs), done, thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn has_ended() -> io::Error {
    io::Error::other("a thread that reads has ended")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn reads_end_in_any_order_and_each_has_its_bytes() {
        let mut workers = Workers::new(4, 4096).unwrap();
        let content: Vec<u8> = (0..20_000_u32).map(|at| (at % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content).unwrap();
        let file = Arc::new(file);
        for (index, at) in [0, 5000, 10_001, 18_000].into_iter().enumerate() {
            workers.begin(index, &file, at, 4096).unwrap();
        }
        // The file ends before the last one is full.
        assert_eq!(workers.bytes(3).unwrap(), &content[18_000..]);
        for (index, at) in [(2, 10_001), (0, 0), (1, 5000)] {
            assert_eq!(workers.bytes(index).unwrap(), &content[at..at + 4096]);
        }
        workers.begin(3, &file, 30_000, 1).unwrap();
        assert!(workers.bytes(3).unwrap().is_empty());
    }

    #[test]
    fn what_cannot_be_is_an_error_and_what_is_under_way_is_waited_for() {
        let mut workers = Workers::new(1, 4096).unwrap();
        let kind = |outcome: io::Result<()>| outcome.unwrap_err().kind();
        let file = Arc::new(tempfile::tempfile().unwrap());
        assert_eq!(kind(workers.begin(0, &file, 0, 5000)), io::ErrorKind::InvalidInput);
        assert_eq!(kind(workers.begin(1, &file, 0, 1)), io::ErrorKind::InvalidInput);
        let dir = Arc::new(File::open("/").unwrap());
        workers.begin(0, &dir, 0, 1).unwrap();
        assert_eq!(workers.bytes(0).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert!(workers.bytes(0).unwrap().is_empty());
        workers.begin(0, &file, 0, 1).unwrap();
        assert_eq!(kind(workers.begin(0, &file, 0, 1)), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn there_are_no_more_than_may_be_and_what_is_given_back_is_there_again() {
        let budget = Budget::new(10);
        let first = budget.take(5).unwrap();
        let second = budget.take(5).unwrap();
        assert!(budget.take(1).is_none());
        drop(first);
        assert!(budget.take(6).is_none() && budget.take(usize::MAX).is_none());
        let third = budget.take(5).unwrap();
        drop((second, third));
        assert!(budget.take(10).is_some());
    }
}
