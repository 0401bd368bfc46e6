//! Properties of the host and the process: identity, limits, CPU time, memory, randomness, polling.
//!
//! The only state changed here is the limit of open files, and the name of a thread.

use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};

/// Fallback when the umask is unknown: access for the owner only.
const FALLBACK_UMASK: u32 = 0o077;

/// Returns the identifier of the current boot.
///
/// # Errors
///
/// `NotFound` without `/proc`; `InvalidData` if it is not a UUID.
pub fn boot_id() -> io::Result<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    parse_uuid(text.trim())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the boot id is not a UUID"))
}

/// Parses a UUID in its usual form: hexadecimal groups of 8, 4, 4, 4 and 12 digits.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let groups: Vec<&str> = text.split('-').collect();
    if !groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) {
        return None;
    }
    let digits = groups.concat();
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
    }
    Some(uuid)
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| digit.try_into().ok())
}

/// Returns the umask of the process; `0o077` if `/proc` does not report it.
///
/// Does not use the system call, which would also set the umask of all threads for a moment.
pub fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    parse_umask(&status).unwrap_or(FALLBACK_UMASK)
}

fn parse_umask(status: &str) -> Option<u32> {
    let octal = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(octal.trim(), 8).ok()
}

/// Raises the limit of open files to its hard limit, and returns it; `u64::MAX` if unlimited.
///
/// # Errors
///
/// `PermissionDenied` if this is forbidden.
pub fn raise_open_file_limit() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    }
    Ok(max_open_files())
}

/// Returns the limit of open files, `u64::MAX` if there is none.
#[must_use]
pub fn max_open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns the number of threads that this user or its container may have; `None` if unlimited.
///
/// The limit of the user covers its other programs, too, and does not bind root.
#[must_use]
pub fn max_threads() -> Option<u64> {
    let limit = getrlimit(Resource::Nproc).current.filter(|_| effective_uid() != 0);
    limit.into_iter().chain(crate::memory::max_group_threads()).min()
}

/// Exits immediately, without the exit handlers of libraries, which free data that running threads
/// use.
///
/// The caller must have written all output.
pub fn exit_now(code: u8) -> ! {
    // SAFETY: the call does not return, and requires nothing of this process.
    unsafe { libc::_exit(code.into()) }
}

/// Returns the effective user ID.
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the name of the host, with invalid UTF-8 replaced.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns major and minor version of the kernel; `None` if its name does not begin with them.
pub fn kernel_version() -> Option<(u32, u32)> {
    parse_version(&rustix::system::uname().release().to_string_lossy())
}

fn parse_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Returns the CPU time of the calling thread.
pub fn thread_cpu_time() -> Duration {
    clock(ClockId::ThreadCPUTime)
}

/// Returns the CPU time of all threads of the process.
pub fn process_cpu_time() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

fn clock(id: ClockId) -> Duration {
    // CPU time clocks are never negative.
    Duration::try_from(clock_gettime(id)).unwrap_or_default()
}

/// Fills `buf` with cryptographically secure random bytes.
///
/// # Errors
///
/// `ENOSYS` or `EPERM` if a seccomp filter forbids the call.
pub fn random(buf: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < buf.len() {
        filled +=
            rustix::io::retry_on_intr(|| getrandom(&mut buf[filled..], GetRandomFlags::empty()))?;
    }
    Ok(())
}

/// Returns the peak resident memory of the process in bytes; zero if unknown.
pub fn max_rss_bytes() -> u64 {
    // Linux reports KiB.
    resource_usage()
        .and_then(|usage| u64::try_from(usage.ru_maxrss).ok())
        .map_or(0, |kib| kib.saturating_mul(1024))
}

/// Returns the resource usage of the process.
fn resource_usage() -> Option<libc::rusage> {
    // SAFETY: the structure consists of integers only, for which all zero bytes are a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one structure to `usage`, which outlives the call.
    let outcome = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    (outcome == 0).then_some(usage)
}

/// Waits until a descriptor is readable or at its end; false after `timeout`.
///
/// # Errors
///
/// Any error of `poll`.
pub fn wait_readable(fd: impl AsFd, timeout: Duration) -> io::Result<bool> {
    wait_for_event(PollFlags::IN, fd, timeout)
}

/// Waits until a descriptor is writable or closed; false after `timeout`.
///
/// A writable pipe accepts at least [`PIPE_BUF`] without blocking.
///
/// # Errors
///
/// Any error of `poll`.
pub fn wait_writable(fd: impl AsFd, timeout: Duration) -> io::Result<bool> {
    wait_for_event(PollFlags::OUT, fd, timeout)
}

/// True if the other end of a pipe or a socket is closed; unread data may remain.
pub fn is_hung_up(fd: impl AsFd) -> bool {
    // `poll` always reports the hang-up of a pipe, but that of a socket only on request.
    wait_for_event(PollFlags::RDHUP, fd, Duration::ZERO).unwrap_or(true)
}

/// Bytes that a writable pipe accepts at once: PIPE_BUF of Linux. (pipe(7))
pub const PIPE_BUF: usize = 4096;

/// Waits until `wakeup` or `socket` is readable, or `socket` is writable if `wants_write`.
///
/// Returns whether `wakeup` is readable.
///
/// # Errors
///
/// Any error of `poll`.
pub fn wait_either(
    wakeup: impl AsFd,
    socket: impl AsFd,
    wants_write: bool,
    timeout: Duration,
) -> io::Result<bool> {
    let wanted = if wants_write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let mut fds = [PollFd::new(&wakeup, PollFlags::IN), PollFd::new(&socket, wanted)];
    poll_until(&mut fds, timeout)?;
    Ok(!fds[0].revents().is_empty())
}

fn wait_for_event(event: PollFlags, fd: impl AsFd, timeout: Duration) -> io::Result<bool> {
    poll_until(&mut [PollFd::new(&fd, event)], timeout)
}

/// Polls until an event or the timeout; returns whether there was an event.
fn poll_until(fds: &mut [PollFd<'_>], timeout: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match rustix::event::poll(fds, Some(&limit)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(err) => return Err(err.into()),
        }
    }
}

/// Names the current thread, as `top -H` shows it: up to 15 bytes.
pub fn name_thread(name: &CStr) {
    // A failure affects only the display.
    let _ = rustix::thread::set_name(name);
}

/// True if the clock is synchronized, as by NTP; `None` if unknown.
#[must_use]
pub fn is_clock_synchronized() -> Option<bool> {
    // SAFETY: all-zero bytes are a valid `timex`, with no mode set: the call only reads.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `state` is a valid, exclusively borrowed `timex` for the time of the call.
    match unsafe { libc::adjtimex(&raw mut state) } {
        libc::TIME_ERROR => Some(false),
        state if state < 0 => None,
        _ => Some(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_either_returns_readable_descriptor() {
        use std::io::Write;
        let (reader, mut writer) = io::pipe().unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let wait =
            |wants_write, ms| wait_either(&reader, &socket, wants_write, Duration::from_millis(ms));
        assert!(!wait(false, 1).unwrap());
        assert!(!wait(true, 60_000).unwrap(), "it has room");
        socket.send_to(&[1], socket.local_addr().unwrap()).unwrap();
        assert!(!wait(false, 60_000).unwrap());
        writer.write_all(&[0]).unwrap();
        assert!(wait(false, 60_000).unwrap());
    }

    #[test]
    fn hung_up_descriptor_may_have_unread_data() {
        use std::io::Write;
        let (reader, mut writer) = io::pipe().unwrap();
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        writer.write_all(b"x").and_then(|()| theirs.write_all(b"x")).unwrap();
        assert!(!is_hung_up(&reader) && !is_hung_up(&ours));
        drop((writer, theirs));
        assert!(is_hung_up(&reader) && is_hung_up(&ours));
    }

    #[test]
    fn boot_id_is_stable_and_not_zero() {
        let id = boot_id().unwrap();
        assert_eq!(id, boot_id().unwrap());
        assert_ne!(id, [0; 16]);
    }

    #[test]
    fn uuid_is_parsed() {
        let id = parse_uuid("00112233-4455-6677-8899-aAbBcCdDeEfF").unwrap();
        assert_eq!(
            id,
            [
                0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd,
                0xee, 0xff
            ]
        );
    }

    #[test]
    fn invalid_uuid_is_rejected() {
        for text in [
            "",
            "00112233445566778899aabbccddeeff",
            "00112233-4455-6677-8899-aabbccddeef",
            "00112233-4455-6677-8899-aabbccddeeff0",
            "0011223-34455-6677-8899-aabbccddeeff",
            "g0112233-4455-6677-8899-aabbccddeeff",
            "+0112233-4455-6677-8899-aabbccddeeff",
            "é112233-4455-6677-8899-aabbccddeeff",
        ] {
            assert_eq!(parse_uuid(text), None, "{text}");
        }
    }

    #[test]
    fn umask_matches_mode_of_new_file() {
        use std::os::unix::fs::PermissionsExt;
        let (root, dir) = crate::testing::scratch();
        dir.create_new("f".as_ref(), 0o777).unwrap();
        let mode = std::fs::metadata(root.path().join("f")).unwrap().permissions().mode() & 0o777;
        assert_eq!(umask(), 0o777 & !mode);
    }

    #[test]
    fn kernel_version_is_major_and_minor() {
        assert!(kernel_version().is_some_and(|version| version >= (4, 20)));
        assert_eq!(parse_version("5.15.0-91-generic"), Some((5, 15)));
        assert_eq!(parse_version("6.8-rc1"), Some((6, 8)));
        assert_eq!((parse_version("six"), parse_version("6")), (None, None));
    }

    #[test]
    fn umask_is_parsed_as_octal() {
        assert_eq!(parse_umask("Name:\tx\nUmask:\t0027\nState:\tR\n"), Some(0o027));
        assert_eq!(parse_umask("Name:\tx\n"), None);
        assert_eq!(parse_umask("Umask:\t9\n"), None);
    }

    #[test]
    fn open_file_limit_is_raised_to_hard_limit() {
        let now = raise_open_file_limit().unwrap();
        assert_eq!(now, getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX));
        assert_eq!(raise_open_file_limit().unwrap(), now);
    }

    #[test]
    fn effective_user_owns_new_file() {
        let (_root, dir) = crate::testing::scratch();
        dir.create_new("f".as_ref(), 0o600).unwrap();
        assert_eq!(dir.stat("f".as_ref()).unwrap().uid, effective_uid());
    }

    #[test]
    fn host_name_equals_proc() {
        let proc = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(host_name(), proc.trim_end());
    }

    #[test]
    fn cpu_time_grows_with_work_not_sleep() {
        let before = (thread_cpu_time(), process_cpu_time());
        std::thread::sleep(Duration::from_millis(200));
        assert!(thread_cpu_time() - before.0 < Duration::from_millis(100));

        let target = thread_cpu_time() + Duration::from_millis(20);
        let mut spins = 0_u64;
        while thread_cpu_time() < target {
            spins = std::hint::black_box(spins + 1);
        }
        assert!(process_cpu_time() - before.1 >= Duration::from_millis(20));
    }

    #[test]
    fn process_cpu_time_is_user_plus_system() {
        let (earlier, usage, later) =
            (process_cpu_time(), resource_usage().unwrap(), process_cpu_time());
        let charged: Duration = [usage.ru_utime, usage.ru_stime]
            .iter()
            .map(|t| Duration::new(t.tv_sec as u64, 1000 * t.tv_usec as u32))
            .sum();
        // The counters are rounded to microseconds.
        let rounding = Duration::from_micros(2);
        assert!(
            charged + rounding >= earlier && charged <= later,
            "{earlier:?} {charged:?} {later:?}"
        );
    }

    #[test]
    fn random_fills_whole_buffer() {
        let mut buf = vec![0_u8; 100_000];
        random(&mut buf).unwrap();
        // 64 zero bytes in a row are practically impossible.
        assert!(
            buf.chunks(64).filter(|chunk| chunk.len() == 64).all(|c| c.iter().any(|&b| b != 0))
        );
        random(&mut []).unwrap();
    }

    #[test]
    fn max_rss_covers_touched_memory() {
        let touched = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(max_rss_bytes() >= touched.len() as u64);
        assert!(max_rss_bytes() < 64 << 30);
    }
}
