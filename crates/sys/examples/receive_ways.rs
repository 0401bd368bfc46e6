//! Ways to receive a file over loopback TCP, compared: what it costs to keep what arrives, beside
//! throwing it away, and what hashing adds on either side.
//!
//! ```sh
//! cargo run --release -p bankfull-sys --example receive_ways -- [DIR] [MIB] [ROUNDS]
//! ```
//!
//! A sender puts a file of MIB mebibytes (default 2048) from DIR (default `/dev/shm`, a tmpfs) on
//! one connection with `sendfile`; a receiver in the same process takes it in one of the ways
//! below, into another file in DIR. Where the sender hashes, it does what bankfull's sender does on
//! a stream without encryption: it reads a piece into memory, hashes it with BLAKE3, then sends it
//! with `sendfile`. Both sockets use cubic, so that the system's default does not matter.
//!
//! The time of a run goes from the established connection to the end of both sides. What a way does
//! to prepare the file (its length, its allocation) counts; making and freeing the file does not.
//! All ways run one after another in each of ROUNDS rounds (default 5), so that a busy machine is
//! busy for all of them. The table has the medians in Gbit/s, their ratio to `discard`, and the
//! slowest and fastest run. Figures of different runs or machines do not compare; ratios of one run
//! do.
//!
//! Before the rounds, every way runs once without being timed, and what is in its file then is
//! compared with the source; a hash taken on the way is compared in every run. Neither file has a
//! name, so the kernel removes them however the program ends. There are no frames, no journal and
//! no packs here: the program has more to do than the row that is marked as it.
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

/// Bytes read, hashed, sent and written at a time. [as the program: `PIECE_BYTES` in the engine]
const PIECE_BYTES: usize = 256 << 10;

/// Pieces that wait between two threads. [as the program: `PIECES` in the engine]
const PIECES: usize = 4;

/// Bytes of the file mapped at a time. [ours: few enough page tables, and few calls of `mmap`]
const WINDOW_BYTES: usize = 4 << 20;

/// What the pipe of `splice` can hold: the most that anybody may ask for. (pipe(7), pipe-max-size)
const SPLICE_PIPE_BYTES: libc::c_int = 1 << 20;

/// What must be free beside the two files. [ours: room for whatever else is written meanwhile]
const SPARE_BYTES: u64 = 64 << 20;

/// How the receiver takes bytes off the socket, and where it puts them.
#[derive(Clone, Copy, PartialEq)]
enum Receive {
    /// Into a buffer, over and over.
    Discard,
    /// `recv`, hash, `pwrite`.
    OneThread,
    /// One thread has the socket, the other the file.
    TwoThreads(HashedBy),
    /// `recv` into a shared mapping of the file, window by window.
    Mapping(Pages),
    /// Socket to pipe to file within the kernel; what is hashed is read from the file.
    Splice,
}

/// Which of two threads hashes.
#[derive(Clone, Copy, PartialEq)]
enum HashedBy {
    Reader,
    Writer,
}

/// How the pages of a mapping come to be.
#[derive(Clone, Copy, PartialEq)]
enum Pages {
    /// When they are first touched.
    OnFault,
    /// With the window (`MAP_POPULATE`).
    Populated,
    /// With the whole file (`fallocate`).
    Allocated,
}

/// Which sides hash.
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

/// One row of the table. A slash in the name stands between the parts of two threads.
struct Way {
    name: &'static str,
    receive: Receive,
    hashing: Hashing,
}

const fn way(name: &'static str, receive: Receive, hashing: Hashing) -> Way {
    Way { name, receive, hashing }
}

/// The rows. The first is what the others are compared with.
const WAYS: [Way; 17] = {
    use Hashing::{Both, Nowhere, Receiver, Sender};
    use Receive::{Discard, Mapping, OneThread, Splice, TwoThreads};
    const READER_HASHES: Receive = TwoThreads(HashedBy::Reader);
    const WRITER_HASHES: Receive = TwoThreads(HashedBy::Writer);
    [
        way("discard", Discard, Nowhere),
        way("discard", Discard, Sender),
        way("discard", Discard, Both),
        way("one thread: recv, pwrite", OneThread, Nowhere),
        way("one thread: recv, hash, pwrite", OneThread, Both),
        way("two threads: recv / pwrite", WRITER_HASHES, Nowhere),
        way("two threads: recv / pwrite", WRITER_HASHES, Sender),
        way("two threads: recv / hash, pwrite", WRITER_HASHES, Receiver),
        way("two threads: recv / hash, pwrite (the program)", WRITER_HASHES, Both),
        way("two threads: recv, hash / pwrite", READER_HASHES, Both),
        way("mapping", Mapping(Pages::OnFault), Nowhere),
        way("mapping, populated", Mapping(Pages::Populated), Nowhere),
        way("mapping, populated", Mapping(Pages::Populated), Both),
        way("mapping, allocated in advance", Mapping(Pages::Allocated), Nowhere),
        way("mapping, allocated in advance", Mapping(Pages::Allocated), Both),
        way("splice", Splice, Nowhere),
        way("splice, then read to hash", Splice, Both),
    ]
};

/// A hash in the making, or none where it is not wanted.
struct Digest(Option<Hasher>);

impl Digest {
    fn new(is_wanted: bool) -> Self {
        Self(is_wanted.then(Hasher::new))
    }

    fn update(&mut self, piece: &[u8]) {
        if let Some(hasher) = &mut self.0 {
            hasher.update(piece);
        }
    }

    fn finish(&self) -> Option<Hash> {
        self.0.as_ref().map(Hasher::finalize)
    }
}

/// What is sent.
struct Source {
    file: File,
    size: u64,
    hash: Hash,
}

impl Source {
    /// A file without a name in `dir`, of a content that differs from place to place: a piece that
    /// lands where another belongs is found.
    fn make(dir: &Path, size: u64) -> io::Result<Self> {
        let file = tempfile::tempfile_in(dir)?;
        let mut stream = Hasher::new().finalize_xof();
        let mut hasher = Hasher::new();
        let mut piece = vec![0; PIECE_BYTES];
        for offset in pieces(size) {
            stream.fill(&mut piece);
            hasher.update(&piece);
            file.write_all_at(&piece, offset)?;
        }
        Ok(Self { file, size, hash: hasher.finalize() })
    }

    /// Sends all of it; the answer is its hash, if wanted.
    fn send(&self, socket: &TcpStream, is_hashed: bool) -> io::Result<Option<Hash>> {
        let mut digest = Digest::new(is_hashed);
        let mut piece = vec![0; PIECE_BYTES];
        for start in pieces(self.size) {
            if is_hashed {
                self.file.read_exact_at(&mut piece, start)?;
                digest.update(&piece);
            }
            let end = start + PIECE_BYTES as u64;
            let mut at = start;
            while at < end {
                let sent = retry(|| send_file(socket, &self.file, at, (end - at) as usize))?;
                at += not_the_end(sent)? as u64;
            }
        }
        Ok(digest.finish())
    }
}

/// The destination of one run.
struct Sink {
    file: File,
    size: u64,
    digest: Digest,
}

impl Sink {
    /// Receives in one of the ways; the answer is the hash, if wanted. The socket is closed at the
    /// end in any case, so that a sender does not wait for a receiver that failed.
    fn receive(mut self, way: Receive, mut socket: TcpStream) -> io::Result<(File, Option<Hash>)> {
        if way != Receive::Discard {
            self.file.set_len(self.size)?;
        }
        match way {
            Receive::Discard => self.discard(&mut socket),
            Receive::OneThread => self.one_thread(&mut socket),
            Receive::TwoThreads(who) => self.two_threads(&mut socket, who),
            Receive::Mapping(pages) => self.mapping(&mut socket, pages),
            Receive::Splice => self.splice(&socket),
        }?;
        Ok((self.file, self.digest.finish()))
    }

    fn discard(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        let mut piece = vec![0; PIECE_BYTES];
        let mut left = self.size;
        while left > 0 {
            let n = not_the_end(retry(|| socket.read(&mut piece))?)?;
            self.digest.update(&piece[..n]);
            left -= n as u64;
        }
        Ok(())
    }

    fn one_thread(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        let mut piece = vec![0; PIECE_BYTES];
        for offset in pieces(self.size) {
            socket.read_exact(&mut piece)?;
            self.digest.update(&piece);
            self.file.write_all_at(&piece, offset)?;
        }
        Ok(())
    }

    /// The calling thread writes, as in the program; the other one ends when it has all, or when
    /// nobody takes what it reads any more.
    fn two_threads(&mut self, socket: &mut TcpStream, who: HashedBy) -> io::Result<()> {
        let Self { file, size, digest } = self;
        let size = *size;
        let mut of_writer = Digest(digest.0.take_if(|_| who == HashedBy::Writer));
        // The buffer used last is taken first: it is in the cache most likely.
        let spare = Mutex::new(Vec::new());
        let (sender, taken) = sync_channel::<Vec<u8>>(PIECES);
        thread::scope(|scope| {
            let (of_reader, spare) = (&mut *digest, &spare);
            let reader = scope.spawn(move || {
                for _ in pieces(size) {
                    let mut piece = lock(spare).pop().unwrap_or_else(|| vec![0; PIECE_BYTES]);
                    socket.read_exact(&mut piece)?;
                    of_reader.update(&piece);
                    if sender.send(piece).is_err() {
                        break;
                    }
                }
                io::Result::Ok(())
            });
            for (offset, piece) in pieces(size).zip(taken) {
                of_writer.update(&piece);
                file.write_all_at(&piece, offset)?;
                lock(spare).push(piece);
            }
            reader.join().unwrap_or_else(|_| Err(io::Error::other("the reading thread panicked")))
        })?;
        if who == HashedBy::Writer {
            *digest = of_writer;
        }
        Ok(())
    }

    fn mapping(&mut self, socket: &mut TcpStream, pages: Pages) -> io::Result<()> {
        if pages == Pages::Allocated && !reserve(&self.file, 0, self.size)? {
            return Err(io::Error::other("this file system cannot allocate in advance"));
        }
        for offset in (0..self.size).step_by(WINDOW_BYTES) {
            let len = (self.size - offset).min(WINDOW_BYTES as u64) as usize;
            let mut window = Window::map(&mut self.file, offset, len, pages == Pages::Populated)?;
            for piece in window.bytes().chunks_mut(PIECE_BYTES) {
                socket.read_exact(piece)?;
                self.digest.update(piece);
            }
        }
        Ok(())
    }

    fn splice(&mut self, socket: &TcpStream) -> io::Result<()> {
        let (out_of, into) = wide_pipe()?;
        let is_hashed = self.digest.0.is_some();
        let mut piece = vec![0; PIECE_BYTES];
        let mut at = 0;
        while at < self.size {
            let wanted = (self.size - at).min(PIECE_BYTES as u64) as usize;
            let len = not_the_end(splice(socket, &into, None, wanted)?)?;
            let mut done = 0;
            while done < len {
                let to = at + done as u64;
                done += not_the_end(splice(&out_of, &self.file, Some(to), len - done)?)?;
            }
            if is_hashed {
                self.file.read_exact_at(&mut piece[..len], at)?;
                self.digest.update(&piece[..len]);
            }
            at += len as u64;
        }
        Ok(())
    }
}

/// A part of a file, mapped shared and writable.
struct Window {
    start: NonNull<u8>,
    len: usize,
}

impl Window {
    /// Maps `len` bytes from `offset` on, which must be within the file and at a page's start. The
    /// file must have no other user while the window is there; it has none without a name.
    fn map(file: &mut File, offset: u64, len: usize, is_populated: bool) -> io::Result<Self> {
        let populate = if is_populated { libc::MAP_POPULATE } else { 0 };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: the kernel chooses the address, so no mapping that is in use is replaced; the
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
        // SAFETY: `start` and `len` are those of a mapping that is readable and writable, is
        // unmapped only when `self` is dropped, and is reached only through `self`. The file is not
        // made shorter, and nobody else has it open.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping is this window's own, and no slice of it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A pipe that holds more than the usual 64 KiB.
fn wide_pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (out_of, into) = io::pipe()?;
    // SAFETY: the descriptor is open, since `into` is alive; F_SETPIPE_SZ takes an int and no
    // pointer.
    match unsafe { libc::fcntl(into.as_raw_fd(), libc::F_SETPIPE_SZ, SPLICE_PIPE_BYTES) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok((out_of, into)),
    }
}

/// Moves up to `len` bytes; `offset` is where they land, if the target is a file.
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

/// The offsets of the pieces of a file, whose size is a multiple of a piece's.
fn pieces(size: u64) -> impl Iterator<Item = u64> {
    (0..size).step_by(PIECE_BYTES)
}

/// Repeats what a signal interrupted.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Nothing moved means an end that came too early.
fn not_the_end(n: usize) -> io::Result<usize> {
    if n == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(n) }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The two ends of a connection over loopback, both with cubic.
fn connection() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    for socket in [&near, &far] {
        set_congestion_control(socket, "cubic")?;
    }
    Ok((near, far))
}

/// Sends the source once and receives it in one way: the rate in Gbit/s, and the file.
fn run(source: &Source, dir: &Path, way: Receive, hashing: Hashing) -> io::Result<(f64, File)> {
    let (near, far) = connection()?;
    let file = tempfile::tempfile_in(dir)?;
    let sink = Sink { file, size: source.size, digest: Digest::new(hashing.at_receiver()) };
    let started = Instant::now();
    let (sent, received) = thread::scope(|scope| {
        let sender = scope.spawn(move || source.send(&near, hashing.at_sender()));
        let received = sink.receive(way, far);
        let sent = sender.join();
        (sent.unwrap_or_else(|_| Err(io::Error::other("the sender panicked"))), received)
    });
    let elapsed = started.elapsed();
    // Whoever failed first says why; the other one saw no more than the connection end.
    let (sent, (file, received)) = match (sent, received) {
        (Err(e), Err(end)) if end.kind() == ErrorKind::UnexpectedEof => return Err(e),
        (sent, received) => {
            let received = received?;
            (sent?, received)
        }
    };
    if [sent, received].into_iter().flatten().any(|hash| hash != source.hash) {
        return Err(io::Error::other("a hash taken on the way is not the source's"));
    }
    Ok((source.size as f64 * 8.0 / 1e9 / elapsed.as_secs_f64(), file))
}

/// Runs one way and compares what arrived with the source. What is discarded has to be hashed as it
/// comes.
fn check(source: &Source, dir: &Path, way: &Way) -> io::Result<()> {
    if way.receive == Receive::Discard {
        return run(source, dir, way.receive, Hashing::Both).map(drop);
    }
    let (_, file) = run(source, dir, way.receive, way.hashing)?;
    let mut hasher = Hasher::new();
    let mut piece = vec![0; PIECE_BYTES];
    for offset in pieces(source.size) {
        file.read_exact_at(&mut piece, offset)?;
        hasher.update(&piece);
    }
    if file.metadata()?.len() != source.size || hasher.finalize() != source.hash {
        return Err(io::Error::other("what is in the file is not what was sent"));
    }
    Ok(())
}

/// The middle of sorted figures.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { sorted[middle - 1].midpoint(sorted[middle]) }
}

/// Prints the table; `rates` has a list for each way, in their order, none of them empty.
fn print_table(mut rates: Vec<Vec<f64>>) {
    rates.iter_mut().for_each(|rates| rates.sort_by(f64::total_cmp));
    let discard = median(&rates[0]);
    let widest = WAYS.iter().map(|way| way.name.len()).max().unwrap_or_default();
    println!("| {:widest$} | hashes   | Gbit/s | ratio | min – max     |", "way");
    println!("|---|---|---|---|---|");
    for (way, rates) in WAYS.iter().zip(&rates) {
        let (name, hashes, rate) = (way.name, way.hashing.name(), median(rates));
        let (min, max) = (rates[0], rates[rates.len() - 1]);
        let ratio = rate / discard;
        println!(
            "| {name:widest$} | {hashes:8} | {rate:6.2} | {ratio:5.2} | {min:5.2} – {max:5.2} |"
        );
    }
}

/// What the command line says.
struct Plan {
    dir: PathBuf,
    size: u64,
    rounds: usize,
}

impl Plan {
    /// `None` if it says something else.
    fn parse(mut words: impl Iterator<Item = std::ffi::OsString>) -> Option<Self> {
        let dir = words.next().map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
        let mut number = |default: u32| match words.next() {
            Some(word) => word.to_str()?.parse().ok().filter(|&n| n > 0),
            None => Some(default),
        };
        let (mib, rounds) = (number(2048)?, number(5)?);
        let plan = Self { dir, size: u64::from(mib) << 20, rounds: rounds as usize };
        words.next().is_none().then_some(plan)
    }

    /// Refuses what does not fit: a mapping of a full tmpfs ends in a signal, not in an error.
    fn check_room(&self) -> io::Result<()> {
        let free = Dir::open(&self.dir)?.free_bytes()?;
        let needed = 2 * self.size + SPARE_BYTES;
        if free < needed {
            let (free, needed) = (free >> 20, needed >> 20);
            let message = format!("{free} MiB are free, {needed} are needed: lower MIB");
            return Err(io::Error::new(ErrorKind::StorageFull, message));
        }
        Ok(())
    }

    fn measure(&self) -> io::Result<()> {
        let of_dir = |e| in_context(&self.dir.display().to_string(), &e);
        self.check_room().map_err(of_dir)?;
        let source = Source::make(&self.dir, self.size).map_err(of_dir)?;
        for way in &WAYS {
            check(&source, &self.dir, way).map_err(|e| in_context(way.name, &e))?;
        }
        eprintln!("{} ways: what arrives is what was sent", WAYS.len());
        let mut rates = vec![Vec::new(); WAYS.len()];
        for round in 1..=self.rounds {
            for (way, rates) in WAYS.iter().zip(&mut rates) {
                let run = run(&source, &self.dir, way.receive, way.hashing);
                rates.push(run.map_err(|e| in_context(way.name, &e))?.0);
            }
            eprintln!("round {round} of {}", self.rounds);
        }
        println!("loopback, cubic, {} MiB, {} rounds, medians", self.size >> 20, self.rounds);
        print_table(rates);
        Ok(())
    }
}

fn in_context(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn main() -> ExitCode {
    let Some(plan) = Plan::parse(env::args_os().skip(1)) else {
        eprintln!("usage: receive_ways [DIR] [MIB] [ROUNDS]");
        return ExitCode::from(2);
    };
    match plan.measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("receive_ways: {e}");
            ExitCode::FAILURE
        }
    }
}
