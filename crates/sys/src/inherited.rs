//! Listening sockets that the process was started with (`sd_listen_fds(3)`).

use rustix::net::SocketType;
use rustix::net::sockopt::{socket_acceptconn, socket_type};
use std::io;
use std::net::TcpListener;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// Returns a duplicate of a listening TCP socket that the process was started with.
///
/// The descriptor itself stays open: nothing else may own it.
///
/// # Errors
///
/// `EBADF` for a number that is not open; `InvalidInput` for a file, or a socket that does not
/// listen for streams.
pub fn inherited_listener(number: RawFd) -> io::Result<TcpListener> {
    if number < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the number is not -1. It is used for one system call, which duplicates the descriptor
    // or fails with EBADF; nothing is closed by this number.
    let owned: OwnedFd = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned()?;
    let listens = socket_type(&owned)? == SocketType::STREAM && socket_acceptconn(&owned)?;
    let listener = TcpListener::from(owned);
    // Fails for a socket of another family.
    let _ = listener.local_addr()?;
    match listens {
        true => Ok(listener),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpStream, UdpSocket};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixListener;

    #[test]
    fn listening_socket_is_duplicated() {
        let original = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = original.local_addr().unwrap();
        let inherited = inherited_listener(original.as_raw_fd()).unwrap();
        assert_ne!(inherited.as_raw_fd(), original.as_raw_fd());
        drop(inherited);
        TcpStream::connect(address).unwrap();
        assert!(original.accept().is_ok());
    }

    #[test]
    fn other_descriptors_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let local = UnixListener::bind(dir.path().join("socket")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let refused =
            [file.as_raw_fd(), datagrams.as_raw_fd(), local.as_raw_fd(), connected.as_raw_fd()];
        for number in refused.into_iter().chain([-1, i32::MAX]) {
            assert!(inherited_listener(number).is_err(), "{number}");
        }
    }
}
