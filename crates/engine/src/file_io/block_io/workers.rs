//! Concurrent reads of a file by one thread each. Used if the kernel or a container denies
//! `io_uring`.

use super::uninterrupted;
use bankfull_sys::Pages;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

/// Maximum number of read threads in this process; later readers use the page cache. (chosen: those
/// of 16 streams, the initial number on a long path)
static READ_THREADS: ThreadBudget = ThreadBudget::new(80);

/// Buffers of equal size, each with a thread that fills it.
pub(crate) struct ReadThreads {
    all: Vec<ReadThread>,
    _share: BudgetShare<'static>,
}

/// Maximum number of threads, and the number in use.
struct ThreadBudget {
    max: usize,
    taken: AtomicUsize,
}

impl ThreadBudget {
    const fn new(max: usize) -> Self {
        Self { max, taken: AtomicUsize::new(0) }
    }

    /// Takes `count` at once, or none.
    fn take(&self, count: usize) -> Option<BudgetShare<'_>> {
        let add = |taken: usize| taken.checked_add(count).filter(|&sum| sum <= self.max);
        let took = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        took.is_ok().then(|| BudgetShare { budget: self, count })
    }
}

/// Share of the budget, returned on drop.
struct BudgetShare<'b> {
    budget: &'b ThreadBudget,
    count: usize,
}

impl Drop for BudgetShare<'_> {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.count, Ordering::Relaxed);
    }
}

struct ReadThread {
    /// Buffer that is not being filled, and the byte count of its last read.
    filled: Option<(Pages, usize)>,
    /// Dropping it ends the thread.
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

impl ReadThreads {
    /// Creates `count` page-aligned buffers of `bytes` bytes.
    ///
    /// # Errors
    /// `ResourceBusy` when the budget of this process is used up; errors of the kernel.
    pub(crate) fn new(count: usize, bytes: usize) -> io::Result<Self> {
        let share = READ_THREADS.take(count).ok_or(io::ErrorKind::ResourceBusy)?;
        let all = (0..count).map(|_| ReadThread::new(bytes)).collect::<io::Result<_>>()?;
        Ok(Self { all, _share: share })
    }

    /// Starts to fill a buffer with `len` bytes of a file at `offset`; its content is lost.
    ///
    /// # Errors
    /// `InvalidInput` if there is no such buffer, it is too small, or it is being filled.
    pub(crate) fn begin(
        &mut self,
        index: usize,
        file: &Arc<File>,
        offset: u64,
        len: usize,
    ) -> io::Result<()> {
        let thread = self.all.get_mut(index).ok_or(io::ErrorKind::InvalidInput)?;
        let file = Arc::clone(file);
        let fits = thread.filled.take_if(|(pages, _)| len <= pages.len());
        let (pages, _) = fits.ok_or(io::ErrorKind::InvalidInput)?;
        let sent = thread.jobs.as_ref().map(|jobs| jobs.send(Job { file, offset, len, pages }));
        sent.and_then(Result::ok).ok_or_else(thread_ended)
    }

    /// Waits for a filled buffer and returns it, short at the end of file. An error is returned
    /// once, and the buffer is empty then.
    pub(crate) fn bytes(&mut self, index: usize) -> io::Result<&[u8]> {
        let thread = self.all.get_mut(index).ok_or(io::ErrorKind::InvalidInput)?;
        if thread.filled.is_none() {
            let (pages, read) = thread.done.recv().map_err(|_| thread_ended())?;
            thread.filled = Some((pages, *read.as_ref().unwrap_or(&0)));
            read?;
        }
        Ok(thread.filled.as_ref().map_or(&[], |(pages, read)| &pages[..*read]))
    }
}

impl ReadThread {
    fn new(bytes: usize) -> io::Result<Self> {
        let (jobs, queue) = channel();
        let (results, done) = channel();
        let work = move || {
            for Job { file, offset, len, mut pages } in queue {
                let read = uninterrupted(|| file.read_at(&mut pages[..len], offset));
                drop(file);
                if results.send((pages, read)).is_err() {
                    return;
                }
            }
        };
        let filled = Some((Pages::new(bytes)?, 0));
        let thread = thread::Builder::new().name("read".to_owned()).spawn(work)?;
        Ok(Self { filled, jobs: Some(jobs), done, thread: Some(thread) })
    }
}

impl Drop for ReadThread {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn thread_ended() -> io::Error {
    io::Error::other("a read thread has ended")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn reads_complete_in_any_order() {
        let mut threads = ReadThreads::new(4, 4096).unwrap();
        let content: Vec<u8> = (0..20_000_u32).map(|at| (at % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content).unwrap();
        let file = Arc::new(file);
        for (index, at) in [0, 5000, 10_001, 18_000].into_iter().enumerate() {
            threads.begin(index, &file, at, 4096).unwrap();
        }
        // The file ends before the last buffer is full.
        assert_eq!(threads.bytes(3).unwrap(), &content[18_000..]);
        for (index, at) in [(2, 10_001), (0, 0), (1, 5000)] {
            assert_eq!(threads.bytes(index).unwrap(), &content[at..at + 4096]);
        }
        threads.begin(3, &file, 30_000, 1).unwrap();
        assert!(threads.bytes(3).unwrap().is_empty());
    }

    #[test]
    fn invalid_read_is_refused_and_running_one_awaited() {
        let mut threads = ReadThreads::new(1, 4096).unwrap();
        let kind = |outcome: io::Result<()>| outcome.unwrap_err().kind();
        let file = Arc::new(tempfile::tempfile().unwrap());
        assert_eq!(kind(threads.begin(0, &file, 0, 5000)), io::ErrorKind::InvalidInput);
        assert_eq!(kind(threads.begin(1, &file, 0, 1)), io::ErrorKind::InvalidInput);
        let dir = Arc::new(File::open("/").unwrap());
        threads.begin(0, &dir, 0, 1).unwrap();
        assert_eq!(threads.bytes(0).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert!(threads.bytes(0).unwrap().is_empty());
        threads.begin(0, &file, 0, 1).unwrap();
        assert_eq!(kind(threads.begin(0, &file, 0, 1)), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn thread_budget_is_bounded_and_returned_on_drop() {
        let budget = ThreadBudget::new(10);
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
