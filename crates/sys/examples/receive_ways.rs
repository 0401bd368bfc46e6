//! Compares ways to receive a file over loopback TCP: the cost of storing the data relative to
//! discarding it, and of hashing on either side.
//!
//! ```sh
//! cargo run --release -p bankfull-sys --example receive_ways -- [DIR] [MIB] [ROUNDS]
//! ```
//!
//! A sender sends a file of MIB mebibytes (default 2048) from DIR (default `/dev/shm`, a tmpfs) on
//! one connection with `sendfile`; a receiver in the same process stores it in one of the ways
//! below, in another file in DIR. A sender that hashes works as bankfull's sender on a stream
//! without encryption: it reads a chunk into memory, hashes it with BLAKE3, then sends it with
//! `sendfile`. Both sockets use cubic, so that the system's default does not matter.
//!
//! A run is timed from the established connection to the end of both sides. Preparation of the
//! file (its length, its allocation) counts; creating and freeing it does not. All ways run one
//! after another in each of ROUNDS rounds (default 5), so that other load affects all of them. The
//! table has the medians in Gbit/s, their ratio to `discard`, and the slowest and fastest run. Only
//! ratios of one run are comparable, not figures of different runs or hosts.
//!
//! Before the rounds, every way runs once untimed, and its file is compared with the source; a
//! hash computed on the way is compared in every run. The files have no names, so the kernel
//! removes them when the program ends. There are no frames, journal or packs here: the real program
//! does more than the row marked with its name.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use bankfull_sys::{Dir, reserve, send_file, set_congestion_control};
use blake3::{Hash, Hasher};
use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::ptr::{self, NonNull};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;
use std::{env, slice};

/// Bytes per read, hash, send and write. (as the program: the engine's chunk)
const CHUNK_BYTES: usize = 256 << 10;

/// Chunks queued between two threads. (as the program)
const QUEUED_CHUNKS: usize = 4;

/// Bytes mapped at a time. (chosen: few page tables, and few calls of `mmap`)
const WINDOW_BYTES: usize = 4 << 20;

/// Capacity of the pipe for `splice`: the maximum for unprivileged users. (pipe(7), pipe-max-size)
const SPLICE_PIPE_BYTES: libc::c_int = 1 << 20;

/// Free space required in addition to the two files. (chosen: for concurrent writes of other
/// programs)
const MIN_SPARE_BYTES: u64 = 64 << 20;

/// Way to take bytes off the socket and store them.
#[derive(Clone, Copy, PartialEq)]
enum Method {
    /// Into one buffer, repeatedly.
    Discard,
    /// `recv`, hash, `pwrite`.
    OneThread,
    /// One thread reads the socket, the other writes the file.
    TwoThreads(HashingThread),
    /// `recv` into a shared mapping of the file, window by window.
    Mapping(PageAllocation),
    /// Socket to pipe to file within the kernel; hashed data is read from the file.
    Splice,
}

/// Thread that hashes.
#[derive(Clone, Copy, PartialEq)]
enum HashingThread {
    Reader,
    Writer,
}

/// Allocation of the pages of a mapping.
#[derive(Clone, Copy, PartialEq)]
enum PageAllocation {
    /// On first access.
    OnFault,
    /// With the window (`MAP_POPULATE`).
    Populated,
    /// With the whole file (`fallocate`).
    Allocated,
}

/// Sides that hash.
#[derive(Clone, Copy)]
enum Hashing {
    Nowhere,
    Sender,
    Receiver,
    Both,
}

impl Hashing {
    fn at_sender(self) -> bool {
        matches!(self, Self::Sender | Self::Both)
    }

    fn at_receiver(self) -> bool {
        matches!(self, Self::Receiver | Self::Both)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Nowhere => "–",
            Self::Sender => "sender",
            Self::Receiver => "receiver",
            Self::Both => "both",
        }
    }
}

/// Row of the table. A slash in the name separates the parts of two threads.
struct Row {
    name: &'static str,
    receive: Method,
    hashing: Hashing,
}

const fn row(name: &'static str, receive: Method, hashing: Hashing) -> Row {
    Row { name, receive, hashing }
}

/// Rows of the table. The first is the baseline.
const ROWS: [Row; 17] = {
    use Hashing::{Both, Nowhere, Receiver, Sender};
    use Method::{Discard, Mapping, OneThread, Splice, TwoThreads};
    const READER_HASHES: Method = TwoThreads(HashingThread::Reader);
    const WRITER_HASHES: Method = TwoThreads(HashingThread::Writer);
    [
        row("discard", Discard, Nowhere),
        row("discard", Discard, Sender),
        row("discard", Discard, Both),
        row("one thread: recv, pwrite", OneThread, Nowhere),
        row("one thread: recv, hash, pwrite", OneThread, Both),
        row("two threads: recv / pwrite", WRITER_HASHES, Nowhere),
        row("two threads: recv / pwrite", WRITER_HASHES, Sender),
        row("two threads: recv / hash, pwrite", WRITER_HASHES, Receiver),
        row("two threads: recv / hash, pwrite (the program)", WRITER_HASHES, Both),
        row("two threads: recv, hash / pwrite", READER_HASHES, Both),
        row("mapping", Mapping(PageAllocation::OnFault), Nowhere),
        row("mapping, populated", Mapping(PageAllocation::Populated), Nowhere),
        row("mapping, populated", Mapping(PageAllocation::Populated), Both),
        row("mapping, allocated in advance", Mapping(PageAllocation::Allocated), Nowhere),
        row("mapping, allocated in advance", Mapping(PageAllocation::Allocated), Both),
        row("splice", Splice, Nowhere),
        row("splice, then read to hash", Splice, Both),
    ]
};

/// Incremental hash, or none.
struct OptionalHash(Option<Hasher>);

impl OptionalHash {
    fn new(is_wanted: bool) -> Self {
        Self(is_wanted.then(Hasher::new))
    }

    fn update(&mut self, chunk: &[u8]) {
        if let Some(hasher) = &mut self.0 {
            hasher.update(chunk);
        }
    }

    fn finish(&self) -> Option<Hash> {
        self.0.as_ref().map(Hasher::finalize)
    }
}

/// File to send.
struct Source {
    file: File,
    size: u64,
    hash: Hash,
}

impl Source {
    /// Creates an unnamed file in `dir` with varying content. A misplaced chunk is therefore
    /// detected.
    fn make(dir: &Path, size: u64) -> io::Result<Self> {
        let file = tempfile::tempfile_in(dir)?;
        let mut stream = Hasher::new().finalize_xof();
        let mut hasher = Hasher::new();
        let mut chunk = vec![0; CHUNK_BYTES];
        for offset in chunk_offsets(size) {
            stream.fill(&mut chunk);
            hasher.update(&chunk);
            file.write_all_at(&chunk, offset)?;
        }
        Ok(Self { file, size, hash: hasher.finalize() })
    }

    /// Sends the whole file, and returns its hash if requested.
    fn send(&self, socket: &TcpStream, is_hashed: bool) -> io::Result<Option<Hash>> {
        let mut digest = OptionalHash::new(is_hashed);
        let mut chunk = vec![0; CHUNK_BYTES];
        for start in chunk_offsets(self.size) {
            if is_hashed {
                self.file.read_exact_at(&mut chunk, start)?;
                digest.update(&chunk);
            }
            let end = start + CHUNK_BYTES as u64;
            let mut at = start;
            while at < end {
                let sent = retry(|| send_file(socket, &self.file, at, (end - at) as usize))?;
                at += non_zero(sent)? as u64;
            }
        }
        Ok(digest.finish())
    }
}

/// Destination of one run.
struct Sink {
    file: File,
    size: u64,
    digest: OptionalHash,
}

impl Sink {
    /// Receives in one of the ways, and returns the file with its hash if requested.
    ///
    /// Always closes the socket, so that the sender does not wait for a failed receiver.
    fn receive(mut self, row: Method, mut socket: TcpStream) -> io::Result<(File, Option<Hash>)> {
        if row != Method::Discard {
            self.file.set_len(self.size)?;
        }
        match row {
            Method::Discard => self.discard(&mut socket),
            Method::OneThread => self.one_thread(&mut socket),
            Method::TwoThreads(hashing_thread) => self.two_threads(&mut socket, hashing_thread),
            Method::Mapping(pages) => self.mapping(&mut socket, pages),
            Method::Splice => self.splice(&socket),
        }?;
        Ok((self.file, self.digest.finish()))
    }

    fn discard(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut left = self.size;
        while left > 0 {
            let n = non_zero(retry(|| socket.read(&mut chunk))?)?;
            self.digest.update(&chunk[..n]);
            left -= n as u64;
        }
        Ok(())
    }

    fn one_thread(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES];
        for offset in chunk_offsets(self.size) {
            socket.read_exact(&mut chunk)?;
            self.digest.update(&chunk);
            self.file.write_all_at(&chunk, offset)?;
        }
        Ok(())
    }

    /// The calling thread writes, as in the program; the other one ends when it has read all, or
    /// when the writer has failed.
    fn two_threads(
        &mut self,
        socket: &mut TcpStream,
        hashing_thread: HashingThread,
    ) -> io::Result<()> {
        let Self { file, size, digest } = self;
        let size = *size;
        let mut writer_digest =
            OptionalHash(digest.0.take_if(|_| hashing_thread == HashingThread::Writer));
        // The most recently used buffer comes first, because it is most likely in the CPU cache.
        let spare = Mutex::new(Vec::new());
        let (sender, taken) = sync_channel::<Vec<u8>>(QUEUED_CHUNKS);
        thread::scope(|scope| {
            let (reader_digest, spare) = (&mut *digest, &spare);
            let reader = scope.spawn(move || {
                for _ in chunk_offsets(size) {
                    let mut chunk = lock(spare).pop().unwrap_or_else(|| vec![0; CHUNK_BYTES]);
                    socket.read_exact(&mut chunk)?;
                    reader_digest.update(&chunk);
                    if sender.send(chunk).is_err() {
                        break;
                    }
                }
                io::Result::Ok(())
            });
            for (offset, chunk) in chunk_offsets(size).zip(taken) {
                writer_digest.update(&chunk);
                file.write_all_at(&chunk, offset)?;
                lock(spare).push(chunk);
            }
            reader.join().unwrap_or_else(|_| Err(io::Error::other("the reading thread panicked")))
        })?;
        if hashing_thread == HashingThread::Writer {
            *digest = writer_digest;
        }
        Ok(())
    }

    fn mapping(&mut self, socket: &mut TcpStream, pages: PageAllocation) -> io::Result<()> {
        if pages == PageAllocation::Allocated && !reserve(&self.file, 0, self.size)? {
            return Err(io::Error::other("this filesystem cannot preallocate"));
        }
        for offset in (0..self.size).step_by(WINDOW_BYTES) {
            let len = (self.size - offset).min(WINDOW_BYTES as u64) as usize;
            let mut window =
                Window::map(&mut self.file, offset, len, pages == PageAllocation::Populated)?;
            for chunk in window.bytes().chunks_mut(CHUNK_BYTES) {
                socket.read_exact(chunk)?;
                self.digest.update(chunk);
            }
        }
        Ok(())
    }

    fn splice(&mut self, socket: &TcpStream) -> io::Result<()> {
        let (out_of, into) = wide_pipe()?;
        let is_hashed = self.digest.0.is_some();
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut at = 0;
        while at < self.size {
            let wanted = (self.size - at).min(CHUNK_BYTES as u64) as usize;
            let len = non_zero(splice(socket, &into, None, wanted)?)?;
            let mut done = 0;
            while done < len {
                let to = at + done as u64;
                done += non_zero(splice(&out_of, &self.file, Some(to), len - done)?)?;
            }
            if is_hashed {
                self.file.read_exact_at(&mut chunk[..len], at)?;
                self.digest.update(&chunk[..len]);
            }
            at += len as u64;
        }
        Ok(())
    }
}

/// Part of a file, mapped shared and writable.
struct Window {
    start: NonNull<u8>,
    len: usize,
}

impl Window {
    /// Maps `len` bytes at the page-aligned `offset`, which must be within the file.
    ///
    /// The file must have no other user while the window exists; an unnamed file has none.
    fn map(file: &mut File, offset: u64, len: usize, is_populated: bool) -> io::Result<Self> {
        let populate = if is_populated { libc::MAP_POPULATE } else { 0 };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced; the
        // descriptor is open, since `file` is borrowed.
        let start = unsafe {
            let flags = libc::MAP_SHARED | populate;
            libc::mmap(ptr::null_mut(), len, access, flags, file.as_raw_fd(), offset)
        };
        match NonNull::new(start) {
            Some(start) if start.as_ptr() != libc::MAP_FAILED => {
                Ok(Self { start: start.cast(), len })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `start` and `len` are those of a readable and writable mapping, which is unmapped
        // only when `self` is dropped, and accessed only through `self`. The file is not truncated,
        // and not open elsewhere.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this window, and no slice of it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Creates a pipe larger than the default of 64 KiB.
fn wide_pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (out_of, into) = io::pipe()?;
    // SAFETY: the descriptor is open, since `into` is alive; F_SETPIPE_SZ takes an int and no
    // pointer.
    match unsafe { libc::fcntl(into.as_raw_fd(), libc::F_SETPIPE_SZ, SPLICE_PIPE_BYTES) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok((out_of, into)),
    }
}

/// Moves up to `len` bytes; `offset` is the target position in a file.
fn splice(from: impl AsFd, to: impl AsFd, offset: Option<u64>, len: usize) -> io::Result<usize> {
    let (from, to) = (from.as_fd().as_raw_fd(), to.as_fd().as_raw_fd());
    let offset = offset.map(libc::loff_t::try_from).transpose().map_err(io::Error::other)?;
    retry(|| {
        let mut offset = offset;
        let place = offset.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        // SAFETY: both descriptors are open, since their owners are borrowed; `place` is null or
        // points to a local that outlives the call.
        let n = unsafe { libc::splice(from, ptr::null_mut(), to, place, len, libc::SPLICE_F_MOVE) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    })
}

/// Returns the offsets of the chunks of a file. The file size is a multiple of the chunk size.
fn chunk_offsets(size: u64) -> impl Iterator<Item = u64> {
    (0..size).step_by(CHUNK_BYTES)
}

/// Retries an interrupted call.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Returns an error for zero bytes: a premature end.
fn non_zero(n: usize) -> io::Result<usize> {
    if n == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(n) }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the two ends of a loopback connection, both with cubic.
fn connection() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    for socket in [&client, &server] {
        set_congestion_control(socket, "cubic")?;
    }
    Ok((client, server))
}

/// Sends the source once and receives it in one way; returns the rate in Gbit/s and the file.
fn run(source: &Source, dir: &Path, row: Method, hashing: Hashing) -> io::Result<(f64, File)> {
    let (client, server) = connection()?;
    let file = tempfile::tempfile_in(dir)?;
    let sink = Sink { file, size: source.size, digest: OptionalHash::new(hashing.at_receiver()) };
    let started = Instant::now();
    let (sent, received) = thread::scope(|scope| {
        let sender = scope.spawn(move || source.send(&client, hashing.at_sender()));
        let received = sink.receive(row, server);
        let sent = sender.join();
        (sent.unwrap_or_else(|_| Err(io::Error::other("the sender panicked"))), received)
    });
    let elapsed = started.elapsed();
    // The first failure is the cause; the other side only saw the connection end.
    let (sent, (file, received)) = match (sent, received) {
        (Err(e), Err(end)) if end.kind() == ErrorKind::UnexpectedEof => return Err(e),
        (sent, received) => {
            let received = received?;
            (sent?, received)
        }
    };
    if [sent, received].into_iter().flatten().any(|hash| hash != source.hash) {
        return Err(io::Error::other("hash mismatch with the source"));
    }
    Ok((source.size as f64 * 8.0 / 1e9 / elapsed.as_secs_f64(), file))
}

/// Runs one way, and compares the received file with the source. Discarded data is hashed on
/// arrival.
fn check(source: &Source, dir: &Path, row: &Row) -> io::Result<()> {
    if row.receive == Method::Discard {
        return run(source, dir, row.receive, Hashing::Both).map(drop);
    }
    let (_, file) = run(source, dir, row.receive, row.hashing)?;
    let mut hasher = Hasher::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    for offset in chunk_offsets(source.size) {
        file.read_exact_at(&mut chunk, offset)?;
        hasher.update(&chunk);
    }
    if file.metadata()?.len() != source.size || hasher.finalize() != source.hash {
        return Err(io::Error::other("the received file differs from the source"));
    }
    Ok(())
}

/// Returns the median of sorted values.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { sorted[middle - 1].midpoint(sorted[middle]) }
}

/// Prints the table; `rates` has a non-empty list for each way, in their order.
fn print_table(mut rates: Vec<Vec<f64>>) {
    rates.iter_mut().for_each(|rates| rates.sort_by(f64::total_cmp));
    let discard = median(&rates[0]);
    let widest = ROWS.iter().map(|row| row.name.len()).max().unwrap_or_default();
    println!("| {:widest$} | hashes   | Gbit/s | ratio | min – max     |", "way");
    println!("|---|---|---|---|---|");
    for (row, rates) in ROWS.iter().zip(&rates) {
        let (name, hashes, rate) = (row.name, row.hashing.name(), median(rates));
        let (min, max) = (rates[0], rates[rates.len() - 1]);
        let ratio = rate / discard;
        println!(
            "| {name:widest$} | {hashes:8} | {rate:6.2} | {ratio:5.2} | {min:5.2} – {max:5.2} |"
        );
    }
}

/// Command-line arguments.
struct Args {
    dir: PathBuf,
    size: u64,
    rounds: usize,
}

impl Args {
    /// Returns `None` if the arguments are invalid.
    fn parse(mut words: impl Iterator<Item = std::ffi::OsString>) -> Option<Self> {
        let dir = words.next().map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
        let mut number = |default: u32| match words.next() {
            Some(word) => word.to_str()?.parse().ok().filter(|&n| n > 0),
            None => Some(default),
        };
        let (mib, rounds) = (number(2048)?, number(5)?);
        let args = Self { dir, size: u64::from(mib) << 20, rounds: rounds as usize };
        words.next().is_none().then_some(args)
    }

    /// Checks the free space: a mapping on a full tmpfs ends in a signal, not in an error.
    fn check_room(&self) -> io::Result<()> {
        let free = Dir::open(&self.dir)?.free_bytes()?;
        let needed = 2 * self.size + MIN_SPARE_BYTES;
        if free < needed {
            let (free, needed) = (free >> 20, needed >> 20);
            let message = format!("{free} MiB are free, {needed} MiB are needed: lower MIB");
            return Err(io::Error::new(ErrorKind::StorageFull, message));
        }
        Ok(())
    }

    fn measure(&self) -> io::Result<()> {
        let of_dir = |e| with_context(&self.dir.display().to_string(), &e);
        self.check_room().map_err(of_dir)?;
        let source = Source::make(&self.dir, self.size).map_err(of_dir)?;
        for row in &ROWS {
            check(&source, &self.dir, row).map_err(|e| with_context(row.name, &e))?;
        }
        eprintln!("{} ways verified: received files equal the source", ROWS.len());
        let mut rates = vec![Vec::new(); ROWS.len()];
        for round in 1..=self.rounds {
            for (row, rates) in ROWS.iter().zip(&mut rates) {
                let run = run(&source, &self.dir, row.receive, row.hashing);
                rates.push(run.map_err(|e| with_context(row.name, &e))?.0);
            }
            eprintln!("round {round} of {}", self.rounds);
        }
        println!("loopback, cubic, {} MiB, {} rounds, medians", self.size >> 20, self.rounds);
        print_table(rates);
        Ok(())
    }
}

fn with_context(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn main() -> ExitCode {
    let Some(args) = Args::parse(env::args_os().skip(1)) else {
        eprintln!("usage: receive_ways [DIR] [MIB] [ROUNDS]");
        return ExitCode::from(2);
    };
    match args.measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("receive_ways: {e}");
            ExitCode::FAILURE
        }
    }
}
