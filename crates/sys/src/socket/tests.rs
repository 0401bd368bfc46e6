use std::io::{Read, Seek, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};

use super::*;
use crate::testing::{errno, kind, name, scratch, wait_until};

/// Returns the two ends of a loopback connection with a read timeout.
fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    for end in [&local, &peer] {
        end.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    }
    (local, peer)
}

/// Sends `total` bytes while the other end reads them.
fn transfer(local: &mut TcpStream, peer: &mut TcpStream, total: usize) {
    let payload = vec![7; total];
    std::thread::scope(|scope| {
        scope.spawn(|| local.write_all(&payload).unwrap());
        let mut received = vec![0; total];
        peer.read_exact(&mut received).unwrap();
        assert!(received == payload);
    });
}

#[test]
fn clamped_window_shrinks_as_data_flows() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    set_window_clamp(&listener, 20_000).unwrap();
    let mut local = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let window = |local: &TcpStream| tcp_info(local).unwrap().snd_wnd;
    assert!(window(&local).is_none_or(|bytes| bytes <= 20_000), "{:?}", window(&local));
    // The first data makes the kernel raise the clamp, and the window advertised then is used up
    // first.
    for _ in 0..30 {
        set_window_clamp(&peer, 20_000).unwrap();
        transfer(&mut local, &mut peer, 10_000);
    }
    // Windows are advertised in units of some bytes.
    wait_until("held", || window(&local).is_none_or(|bytes| bytes <= 20_480));
    assert!(set_window_clamp(UdpSocket::bind("127.0.0.1:0").unwrap(), 20_000).is_err());
}

/// Returns the window scale of a connection's peer and its own.
fn window_scales(connection: &TcpStream) -> [u8; 2] {
    let mut info = [0u8; 8];
    let mut len = info.len() as libc::socklen_t;
    // SAFETY: the descriptor is open while `connection` is borrowed; the kernel writes up to `len`
    // bytes to `info`, and the length to `len`.
    let outcome = unsafe {
        libc::getsockopt(
            connection.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    assert_eq!((outcome, len), (0, 8));
    // Two bit fields follow six bytes (struct tcp_info, linux/tcp.h).
    [info[6] & 15, info[6] >> 4]
}

#[test]
fn window_scale_is_limited_before_the_handshake() {
    let most = 65_535 << 3;
    let limit = |s: BorrowedFd<'_>| set_int(s, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, most);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let usual = connect();
    limit_window_scale(&listener).unwrap();
    let [scale, own] = window_scales(&connect());
    assert!(scale <= 10 && own == window_scales(&usual)[1], "{scale}");
    // A limit below the default of this host.
    limit(listener.as_fd()).unwrap();
    assert_eq!(window_scales(&connect())[0], 3);
    assert!(limit_window_scale(UdpSocket::bind("127.0.0.1:0").unwrap()).is_err());
}

#[test]
fn tcp_info_counts_every_byte_at_both_ends() {
    let (mut local, mut peer) = connected();
    let total = 1 << 20;
    transfer(&mut local, &mut peer, total);
    let total = total as u64;

    // The acknowledgement of the last byte may still be in flight.
    wait_until("acknowledged", || tcp_info(&local).unwrap().bytes_acked.unwrap() >= total);
    let sender = tcp_info(&local).unwrap();
    let receiver = tcp_info(&peer).unwrap();

    // Some of these count the SYN as a byte.
    assert!(sender.bytes_acked.unwrap() <= total + 1, "{sender:?}");
    assert_eq!(sender.bytes_sent.unwrap() - sender.bytes_retrans.unwrap(), total, "{sender:?}");
    assert_eq!(sender.bytes_received, Some(0));
    assert_eq!(receiver.bytes_received, Some(total), "{receiver:?}");
    assert_eq!(receiver.bytes_sent, Some(0));
    assert_eq!(sender.notsent_bytes, Some(0));
}

#[test]
fn window_is_not_clamped_while_much_is_unread() {
    let (local, mut peer) = connected();
    local.set_nonblocking(true).unwrap();
    let clamp =
        |peer: &TcpStream| get_int(peer, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP).unwrap();
    assert!(set_window_clamp(&peer, 300_000).unwrap());
    // Until the window is closed.
    let mut sent = 0;
    let mut is_full = || loop {
        match (&local).write(&[7; 64 << 10]) {
            Ok(n) => sent += n,
            Err(_) => return tcp_info(&local).unwrap().snd_wnd == Some(0),
        }
    };
    wait_until("the window is closed", &mut is_full);
    // The kernel lowers it by itself then.
    let before = clamp(&peer);
    assert!(!set_window_clamp(&peer, 20_000).unwrap());
    assert_eq!(clamp(&peer), before);
    let mut buffer = vec![0; sent];
    peer.read_exact(&mut buffer).unwrap();
    assert!(set_window_clamp(&peer, 20_000).unwrap());
    assert_eq!(clamp(&peer), 20_000);
}

#[test]
fn eor_sends_are_not_coalesced() {
    let arrived = |send: fn(&TcpStream)| {
        let (local, mut peer) = connected();
        // Corked until all is written, as when the window is closed.
        sockopt::set_tcp_cork(&local, true).unwrap();
        (0..10).for_each(|_| send(&local));
        sockopt::set_tcp_cork(&local, false).unwrap();
        peer.read_exact(&mut [0; 1000]).unwrap();
        tcp_info(&peer).unwrap().data_segs_in.unwrap()
    };
    let apart = arrived(|local| {
        let parts = [io::IoSlice::new(&[5; 50]), io::IoSlice::new(&[5; 50])];
        assert_eq!(send_eor(local, &parts).unwrap(), 100);
    });
    let joined = arrived(|mut local| local.write_all(&[5; 100]).unwrap());
    assert_eq!((apart, joined), (10, 1));
    let (local, peer) = connected();
    drop(peer);
    wait_until("closed", || send_eor(&local, &[io::IoSlice::new(&[5; 50])]).is_err());
}

#[test]
fn tcp_info_of_used_connection_is_plausible() {
    let (mut local, mut peer) = connected();
    transfer(&mut local, &mut peer, 8 << 20);
    let info = tcp_info(&local).unwrap();

    assert!(info.rtt > Duration::ZERO && info.rtt < Duration::from_secs(5), "{info:?}");
    assert!(info.min_rtt.unwrap() <= info.rtt * 100, "{info:?}");
    assert!(info.snd_cwnd > 0 && info.snd_mss >= 500, "{info:?}");
    assert!(info.snd_wnd.unwrap() > 0, "{info:?}");
    assert!(info.delivery_rate_bytes_per_sec.unwrap() > 1000, "{info:?}");
    assert!(info.busy_time.unwrap() > Duration::ZERO, "{info:?}");
    assert!(info.busy_time.unwrap() >= info.rwnd_limited.unwrap(), "{info:?}");
    assert!(tcp_info(&peer).unwrap().rcv_space > 0);
}

#[test]
fn notsent_lowat_limits_unsent_bytes() {
    let unsent = |most: Option<u32>| {
        let (mut local, peer) = connected();
        if let Some(most) = most {
            set_notsent_lowat(&local, most).unwrap();
        }
        local.set_nonblocking(true).unwrap();
        let chunk = vec![0; 16 << 10];
        // The peer does not read: its window closes, and later data waits.
        wait_until("window closed", || {
            while local.write(&chunk).is_ok() {}
            tcp_info(&local).unwrap().rwnd_limited.unwrap() > Duration::from_millis(20)
        });
        drop(peer);
        tcp_info(&local).unwrap().notsent_bytes.unwrap()
    };
    let (free, held) = (unsent(None), unsent(Some(64 << 10)));
    assert!(held <= (64 + 16) << 10, "{held}");
    assert!(free > 2 * held, "{free} {held}");
}

#[test]
fn stalled_peer_counts_as_rwnd_limited() {
    let (mut local, peer) = connected();
    local.set_nonblocking(true).unwrap();
    let chunk = vec![0; 1 << 20];
    wait_until("window closed", || {
        while local.write(&chunk).is_ok() {}
        tcp_info(&local).unwrap().rwnd_limited.unwrap() > Duration::from_millis(20)
    });
    let info = tcp_info(&local).unwrap();
    assert!(info.busy_time.unwrap() >= info.rwnd_limited.unwrap(), "{info:?}");
    assert!(info.notsent_bytes.unwrap() > 0, "{info:?}");
    drop(peer);
}

#[test]
fn tcp_info_of_other_descriptors_fails() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let refused = errno(tcp_info(&udp));
    assert!(matches!(refused, libc::EOPNOTSUPP | libc::ENOPROTOOPT), "{refused}");
    let (pipe, _writer) = io::pipe().unwrap();
    assert_eq!(errno(tcp_info(&pipe)), libc::ENOTSOCK);
}

/// Returns a structure of equal bytes.
fn filled(byte: u8) -> RawInfo {
    // SAFETY: the structure consists of integers only: any bytes are a value.
    unsafe { std::mem::transmute([byte; size_of::<RawInfo>()]) }
}

#[test]
fn tcp_info_fields_past_kernel_length_are_absent() {
    let raw = filled(1);
    let old = TcpInfo::from_raw(&raw, offset_of!(RawInfo, tcpi_pacing_rate));
    let ones = u32::from_ne_bytes([1; 4]);
    let expected = TcpInfo {
        rtt: Duration::from_micros(ones.into()),
        total_retrans: ones,
        snd_cwnd: ones,
        snd_mss: ones,
        rcv_rtt: Some(Duration::from_micros(ones.into())),
        rcv_space: ones,
        rcv_ssthresh: ones,
        ..TcpInfo::default()
    };
    assert_eq!(old, expected);

    let end = offset_of!(RawInfo, tcpi_bytes_sent) + 8;
    assert_eq!(TcpInfo::from_raw(&raw, end - 1).bytes_sent, None, "half a field is none");
    let newer = TcpInfo::from_raw(&raw, end);
    assert_eq!(newer.bytes_sent, Some(u64::from_ne_bytes([1; 8])));
    assert_eq!((newer.bytes_retrans, newer.snd_wnd), (None, None));
    assert!(newer.bytes_acked.is_some() && newer.busy_time.is_some());

    let whole = TcpInfo::from_raw(&raw, size_of::<RawInfo>());
    assert_eq!((whole.snd_wnd, whole.notsent_bytes), (Some(ones), Some(ones)));
}

#[test]
fn unmeasured_tcp_info_fields_are_absent() {
    let unmeasured = TcpInfo::from_raw(&filled(0), size_of::<RawInfo>());
    assert_eq!((unmeasured.delivery_rate_bytes_per_sec, unmeasured.rcv_rtt), (None, None));
    assert_eq!(unmeasured.bytes_acked, Some(0), "zero is a count");
    let unlimited = TcpInfo::from_raw(&filled(0xff), size_of::<RawInfo>());
    assert_eq!((unlimited.pacing_rate_bytes_per_sec, unlimited.min_rtt), (None, None));
}

#[test]
fn congestion_control_defaults_to_system_and_is_set() {
    let (local, _far) = connected();
    let system = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    assert_eq!(congestion_control(&local).unwrap(), system.trim_end());
    // Every kernel has this algorithm, and allows it to all users.
    set_congestion_control(&local, "reno").unwrap();
    assert_eq!(congestion_control(&local).unwrap(), "reno");
    assert_eq!(kind(set_congestion_control(&local, "no-such")), io::ErrorKind::NotFound);
    assert_eq!(congestion_control(&local).unwrap(), "reno");
}

#[test]
fn user_timeout_is_rounded_up_to_milliseconds() {
    let (local, _far) = connected();
    for (timeout, millis) in [
        (Duration::from_millis(1500), 1500),
        (Duration::from_nanos(1), 1),
        (Duration::from_micros(2_000_001), 2001),
        (Duration::from_millis(u32::MAX.into()), i32::MAX as u32),
        (Duration::MAX, i32::MAX as u32),
        (Duration::ZERO, 0),
    ] {
        set_user_timeout(&local, timeout).unwrap();
        assert_eq!(sockopt::tcp_user_timeout(&local).unwrap(), millis, "{timeout:?}");
    }
}

#[test]
fn send_file_does_not_move_file_offset() {
    let (root, dir) = scratch();
    std::fs::write(root.path().join("f"), "0123456789").unwrap();
    let mut file = dir.open_file(name(b"f")).unwrap();
    let (local, mut peer) = connected();

    assert_eq!(send_file(&local, &file, 3, 4).unwrap(), 4);
    assert_eq!(send_file(&local, &file, 8, 100).unwrap(), 2, "up to the end");
    assert_eq!(send_file(&local, &file, 10, 100).unwrap(), 0, "at the end");

    assert_eq!(file.stream_position().unwrap(), 0);
    drop(local);
    let mut received = String::new();
    peer.read_to_string(&mut received).unwrap();
    assert_eq!(received, "345689");
}

#[test]
fn send_file_in_parts_delivers_whole_file() {
    let (root, dir) = scratch();
    let content: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(root.path().join("f"), &content).unwrap();
    let file = dir.open_file(name(b"f")).unwrap();
    let (local, mut peer) = connected();
    let reader = std::thread::spawn(move || {
        let mut received = Vec::new();
        peer.read_to_end(&mut received).unwrap();
        received
    });

    let mut sent = 0;
    while sent < content.len() {
        sent += send_file(&local, &file, sent as u64, content.len() - sent).unwrap();
    }
    drop(local);

    assert!(reader.join().unwrap() == content);
}

#[test]
fn send_file_to_full_socket_would_block() {
    let (root, dir) = scratch();
    std::fs::write(root.path().join("f"), vec![0; 1 << 20]).unwrap();
    let file = dir.open_file(name(b"f")).unwrap();
    let (local, _far) = connected();
    local.set_nonblocking(true).unwrap();
    let mut outcome = Ok(0);
    wait_until("full", || {
        outcome = send_file(&local, &file, 0, 1 << 20);
        outcome.is_err()
    });
    assert_eq!(kind(outcome), io::ErrorKind::WouldBlock);
}

#[test]
fn peek_leaves_bytes_in_queue() {
    let (mut local, mut peer) = connected();
    local.write_all(b"hello").unwrap();
    let mut buf = [0; 16];
    wait_until("arrived", || peek(&peer, &mut buf).unwrap() == 5);
    assert_eq!(&buf[..5], b"hello");
    let mut short = [0; 2];
    assert_eq!(peek(&peer, &mut short).unwrap(), 2);
    assert_eq!(&short, b"he");
    assert_eq!(peer.read(&mut buf).unwrap(), 5);

    peer.set_nonblocking(true).unwrap();
    assert_eq!(kind(peek(&peer, &mut buf)), io::ErrorKind::WouldBlock);
    local.shutdown(Shutdown::Write).unwrap();
    wait_until("closed", || matches!(peek(&peer, &mut buf), Ok(0)));
}

#[test]
fn send_queue_counts_unacknowledged_bytes() {
    let (mut local, mut peer) = connected();
    assert_eq!(send_queue_bytes(&local).unwrap(), 0);
    local.set_nonblocking(true).unwrap();
    let chunk = vec![0; 1 << 20];
    let mut written = 0;
    while let Ok(taken) = local.write(&chunk) {
        written += taken;
    }
    let queued = send_queue_bytes(&local).unwrap() as usize;
    assert!(queued > 0 && queued <= written, "{queued} of {written}");

    peer.read_exact(&mut vec![0; written]).unwrap();
    wait_until("drained", || send_queue_bytes(&local).unwrap() == 0);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert_eq!(errno(send_queue_bytes(&listener)), libc::EINVAL);
}

#[test]
fn grown_window_accepts_data_and_wakes_reader() {
    let (mut local, mut peer) = connected();
    grow_receive_window(&peer, 1 << 20).unwrap();
    local.write_all(b"x").unwrap();
    let mut some = [0; 8];
    assert_eq!(peer.read(&mut some).unwrap(), 1);
    let total = 256 << 10;
    std::thread::scope(|scope| {
        scope.spawn(|| local.write_all(&vec![7; total]).unwrap());
        let arrived = || tcp_info(&peer).unwrap().bytes_received.unwrap();
        wait_until("arrived", || arrived() > total as u64);
    });
}

#[test]
fn forced_buffers_exceed_limits_when_privileged() {
    let (local, peer) = connected();
    let most = 80 << 20;
    let forced = [force_send_buffer(&local, most), force_receive_buffer(&peer, most)];
    if crate::effective_uid() == 0 && forced.iter().all(Result::is_ok) {
        let sizes = [
            sockopt::socket_send_buffer_size(&local).unwrap(),
            sockopt::socket_recv_buffer_size(&peer).unwrap(),
        ];
        assert_eq!(sizes, [2 * most as usize; 2]);
    } else {
        for outcome in forced {
            assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
    }
}

#[test]
fn pacing_limits_rate_and_is_removed() {
    let (mut local, mut peer) = connected();
    set_pacing(&local, Some(1_000_000)).unwrap();
    let rate = |local: &TcpStream| tcp_info(local).unwrap().pacing_rate_bytes_per_sec;
    transfer(&mut local, &mut peer, 10_000);
    wait_until("paced", || rate(&local).is_some_and(|rate| rate <= 1_000_000));
    set_pacing(&local, None).unwrap();
    transfer(&mut local, &mut peer, 10_000);
    wait_until("free", || rate(&local).is_some_and(|rate| rate > 1_000_000));
}

#[test]
fn receive_queue_counts_unread_bytes() {
    let (mut local, peer) = connected();
    local.write_all(&[1; 3_000]).unwrap();
    wait_until("arrived", || receive_queue_bytes(&peer).unwrap() == 3_000);
}
