use std::io::{Read, Seek, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};

use super::*;
use crate::testing::{errno, kind, name, scratch, wait_until};

/// Two ends of a connection over loopback, where waiting in vain to read is an error.
fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    for end in [&near, &far] {
        end.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    }
    (near, far)
}

/// Sends `total` bytes one way while reading them at the other end.
fn transfer(near: &mut TcpStream, far: &mut TcpStream, total: usize) {
    let payload = vec![7; total];
    std::thread::scope(|scope| {
        scope.spawn(|| near.write_all(&payload).unwrap());
        let mut received = vec![0; total];
        far.read_exact(&mut received).unwrap();
        assert!(received == payload);
    });
}

#[test]
fn a_window_that_is_held_comes_down_to_its_size_as_data_flows() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    hold_window(&listener, 20_000).unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    far.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let window = |near: &TcpStream| tcp_info(near).unwrap().snd_wnd;
    assert!(window(&near).is_none_or(|bytes| bytes <= 20_000), "{:?}", window(&near));
    // The first data makes the kernel raise it, and what was offered then is used up first.
    for _ in 0..30 {
        hold_window(&far, 20_000).unwrap();
        transfer(&mut near, &mut far, 10_000);
    }
    // Windows are told in units of some bytes.
    wait_until("held", || window(&near).is_none_or(|bytes| bytes <= 20_480));
    assert!(hold_window(UdpSocket::bind("127.0.0.1:0").unwrap(), 20_000).is_err());
}

#[test]
fn both_ends_account_for_every_byte_that_crossed() {
    let (mut near, mut far) = connected();
    let total = 1 << 20;
    transfer(&mut near, &mut far, total);
    let total = total as u64;

    // The acknowledgement of the last byte may still be on its way.
    wait_until("acknowledged", || tcp_info(&near).unwrap().bytes_acked.unwrap() >= total);
    let sender = tcp_info(&near).unwrap();
    let receiver = tcp_info(&far).unwrap();

    // The opening of the connection counts as a byte in some of these.
    assert!(sender.bytes_acked.unwrap() <= total + 1, "{sender:?}");
    assert_eq!(sender.bytes_sent.unwrap() - sender.bytes_retrans.unwrap(), total, "{sender:?}");
    assert_eq!(sender.bytes_received, Some(0));
    assert_eq!(receiver.bytes_received, Some(total), "{receiver:?}");
    assert_eq!(receiver.bytes_sent, Some(0));
    assert_eq!(sender.notsent_bytes, Some(0));
}

#[test]
fn bytes_sent_apart_are_not_joined_even_where_they_wait() {
    let arrived = |send: fn(&TcpStream)| {
        let (near, mut far) = connected();
        // Held back until it is over, as where the window is closed.
        sockopt::set_tcp_cork(&near, true).unwrap();
        (0..10).for_each(|_| send(&near));
        sockopt::set_tcp_cork(&near, false).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        tcp_info(&far).unwrap().data_segs_in.unwrap()
    };
    let apart = arrived(|near| {
        let parts = [io::IoSlice::new(&[5; 50]), io::IoSlice::new(&[5; 50])];
        assert_eq!(send_apart(near, &parts).unwrap(), 100);
    });
    let joined = arrived(|mut near| near.write_all(&[5; 100]).unwrap());
    assert_eq!((apart, joined), (10, 1));
    let (near, far) = connected();
    drop(far);
    wait_until("closed", || send_apart(&near, &[io::IoSlice::new(&[5; 50])]).is_err());
}

#[test]
fn a_used_connection_has_plausible_measurements() {
    let (mut near, mut far) = connected();
    transfer(&mut near, &mut far, 8 << 20);
    let info = tcp_info(&near).unwrap();

    assert!(info.rtt > Duration::ZERO && info.rtt < Duration::from_secs(5), "{info:?}");
    assert!(info.min_rtt.unwrap() <= info.rtt * 100, "{info:?}");
    assert!(info.snd_cwnd > 0 && info.snd_mss >= 500, "{info:?}");
    assert!(info.snd_wnd.unwrap() > 0, "{info:?}");
    assert!(info.delivery_rate_bytes_per_sec.unwrap() > 1000, "{info:?}");
    assert!(info.busy_time.unwrap() > Duration::ZERO, "{info:?}");
    assert!(info.busy_time.unwrap() >= info.rwnd_limited.unwrap(), "{info:?}");
    assert!(tcp_info(&far).unwrap().rcv_space > 0);
}

#[test]
fn no_more_waits_unsent_than_is_set_but_for_one_write() {
    let unsent = |most: Option<u32>| {
        let (mut near, far) = connected();
        if let Some(most) = most {
            set_unsent_max(&near, most).unwrap();
        }
        near.set_nonblocking(true).unwrap();
        let chunk = vec![0; 16 << 10];
        // The peer reads nothing: its window closes, and what comes then waits.
        wait_until("window closed", || {
            while near.write(&chunk).is_ok() {}
            tcp_info(&near).unwrap().rwnd_limited.unwrap() > Duration::from_millis(20)
        });
        drop(far);
        tcp_info(&near).unwrap().notsent_bytes.unwrap()
    };
    let (free, held) = (unsent(None), unsent(Some(64 << 10)));
    assert!(held <= (64 + 16) << 10, "{held}");
    assert!(free > 2 * held, "{free} {held}");
}

#[test]
fn a_stalled_peer_shows_as_time_limited_by_its_window() {
    let (mut near, far) = connected();
    near.set_nonblocking(true).unwrap();
    let chunk = vec![0; 1 << 20];
    wait_until("window closed", || {
        while near.write(&chunk).is_ok() {}
        tcp_info(&near).unwrap().rwnd_limited.unwrap() > Duration::from_millis(20)
    });
    let info = tcp_info(&near).unwrap();
    assert!(info.busy_time.unwrap() >= info.rwnd_limited.unwrap(), "{info:?}");
    assert!(info.notsent_bytes.unwrap() > 0, "{info:?}");
    drop(far);
}

#[test]
fn what_is_not_tcp_has_no_tcp_info() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let refused = errno(tcp_info(&udp));
    assert!(matches!(refused, libc::EOPNOTSUPP | libc::ENOPROTOOPT), "{refused}");
    let (pipe, _writer) = io::pipe().unwrap();
    assert_eq!(errno(tcp_info(&pipe)), libc::ENOTSOCK);
}

/// A structure in which every byte is `byte`.
fn filled(byte: u8) -> RawInfo {
    // SAFETY: the structure is made of integers only: any bytes are a value.
    unsafe { std::mem::transmute([byte; size_of::<RawInfo>()]) }
}

#[test]
fn fields_past_the_length_the_kernel_wrote_are_absent() {
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
fn what_the_kernel_has_not_measured_is_absent() {
    let unmeasured = TcpInfo::from_raw(&filled(0), size_of::<RawInfo>());
    assert_eq!((unmeasured.delivery_rate_bytes_per_sec, unmeasured.rcv_rtt), (None, None));
    assert_eq!(unmeasured.bytes_acked, Some(0), "zero is a count");
    let unlimited = TcpInfo::from_raw(&filled(0xff), size_of::<RawInfo>());
    assert_eq!((unlimited.pacing_rate_bytes_per_sec, unlimited.min_rtt), (None, None));
}

#[test]
fn the_congestion_control_starts_as_the_systems_and_can_be_chosen() {
    let (near, _far) = connected();
    let system = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
    assert_eq!(congestion_control(&near).unwrap(), system.trim_end());
    // Every kernel has this one, and lets everybody use it.
    set_congestion_control(&near, "reno").unwrap();
    assert_eq!(congestion_control(&near).unwrap(), "reno");
    assert_eq!(kind(set_congestion_control(&near, "no-such")), io::ErrorKind::NotFound);
    assert_eq!(congestion_control(&near).unwrap(), "reno");
}

#[test]
fn the_user_timeout_is_in_milliseconds_and_never_rounds_down_to_none() {
    let (near, _far) = connected();
    for (timeout, millis) in [
        (Duration::from_millis(1500), 1500),
        (Duration::from_nanos(1), 1),
        (Duration::from_micros(2_000_001), 2001),
        (Duration::from_millis(u32::MAX.into()), i32::MAX as u32),
        (Duration::MAX, i32::MAX as u32),
        (Duration::ZERO, 0),
    ] {
        set_user_timeout(&near, timeout).unwrap();
        assert_eq!(sockopt::tcp_user_timeout(&near).unwrap(), millis, "{timeout:?}");
    }
}

#[test]
fn a_file_is_sent_from_the_offset_and_its_own_offset_stays() {
    let (root, dir) = scratch();
    std::fs::write(root.path().join("f"), "0123456789").unwrap();
    let mut file = dir.open_file(name(b"f")).unwrap();
    let (near, mut far) = connected();

    assert_eq!(send_file(&near, &file, 3, 4).unwrap(), 4);
    assert_eq!(send_file(&near, &file, 8, 100).unwrap(), 2, "up to the end");
    assert_eq!(send_file(&near, &file, 10, 100).unwrap(), 0, "at the end");

    assert_eq!(file.stream_position().unwrap(), 0);
    drop(near);
    let mut received = String::new();
    far.read_to_string(&mut received).unwrap();
    assert_eq!(received, "345689");
}

#[test]
fn sending_a_large_file_in_parts_delivers_it_whole() {
    let (root, dir) = scratch();
    let content: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(root.path().join("f"), &content).unwrap();
    let file = dir.open_file(name(b"f")).unwrap();
    let (near, mut far) = connected();
    let reader = std::thread::spawn(move || {
        let mut received = Vec::new();
        far.read_to_end(&mut received).unwrap();
        received
    });

    let mut sent = 0;
    while sent < content.len() {
        sent += send_file(&near, &file, sent as u64, content.len() - sent).unwrap();
    }
    drop(near);

    assert!(reader.join().unwrap() == content);
}

#[test]
fn sending_to_a_full_non_blocking_socket_would_block() {
    let (root, dir) = scratch();
    std::fs::write(root.path().join("f"), vec![0; 1 << 20]).unwrap();
    let file = dir.open_file(name(b"f")).unwrap();
    let (near, _far) = connected();
    near.set_nonblocking(true).unwrap();
    let mut outcome = Ok(0);
    wait_until("full", || {
        outcome = send_file(&near, &file, 0, 1 << 20);
        outcome.is_err()
    });
    assert_eq!(kind(outcome), io::ErrorKind::WouldBlock);
}

#[test]
fn peeking_leaves_the_bytes_to_be_read() {
    let (mut near, mut far) = connected();
    near.write_all(b"hello").unwrap();
    let mut buf = [0; 16];
    wait_until("arrived", || peek(&far, &mut buf).unwrap() == 5);
    assert_eq!(&buf[..5], b"hello");
    let mut short = [0; 2];
    assert_eq!(peek(&far, &mut short).unwrap(), 2);
    assert_eq!(&short, b"he");
    assert_eq!(far.read(&mut buf).unwrap(), 5);

    far.set_nonblocking(true).unwrap();
    assert_eq!(kind(peek(&far, &mut buf)), io::ErrorKind::WouldBlock);
    near.shutdown(Shutdown::Write).unwrap();
    wait_until("closed", || matches!(peek(&far, &mut buf), Ok(0)));
}

#[test]
fn the_send_queue_counts_what_is_unacknowledged_until_it_is_read() {
    let (mut near, mut far) = connected();
    assert_eq!(send_queue_bytes(&near).unwrap(), 0);
    near.set_nonblocking(true).unwrap();
    let chunk = vec![0; 1 << 20];
    let mut written = 0;
    while let Ok(taken) = near.write(&chunk) {
        written += taken;
    }
    let queued = send_queue_bytes(&near).unwrap() as usize;
    assert!(queued > 0 && queued <= written, "{queued} of {written}");

    far.read_exact(&mut vec![0; written]).unwrap();
    wait_until("drained", || send_queue_bytes(&near).unwrap() == 0);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert_eq!(errno(send_queue_bytes(&listener)), libc::EINVAL);
}

#[test]
fn an_opened_window_takes_what_nobody_reads_and_a_reader_is_woken_by_the_first_byte() {
    let (mut near, mut far) = connected();
    open_window(&far, 1 << 20).unwrap();
    near.write_all(b"x").unwrap();
    let mut some = [0; 8];
    assert_eq!(far.read(&mut some).unwrap(), 1);
    let total = 256 << 10;
    std::thread::scope(|scope| {
        scope.spawn(|| near.write_all(&vec![7; total]).unwrap());
        let arrived = || tcp_info(&far).unwrap().bytes_received.unwrap();
        wait_until("arrived", || arrived() > total as u64);
    });
}

#[test]
fn buffers_go_beyond_what_every_program_may_have_where_it_is_allowed() {
    let (near, far) = connected();
    let most = 80 << 20;
    let forced = [force_send_buffer(&near, most), force_receive_buffer(&far, most)];
    if crate::effective_uid() == 0 && forced.iter().all(Result::is_ok) {
        let sizes = [
            sockopt::socket_send_buffer_size(&near).unwrap(),
            sockopt::socket_recv_buffer_size(&far).unwrap(),
        ];
        assert_eq!(sizes, [2 * most as usize; 2]);
    } else {
        for outcome in forced {
            assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
    }
}

#[test]
fn pacing_holds_the_rate_and_lets_go_again() {
    let (mut near, mut far) = connected();
    set_pacing(&near, Some(1_000_000)).unwrap();
    let rate = |near: &TcpStream| tcp_info(near).unwrap().pacing_rate_bytes_per_sec;
    transfer(&mut near, &mut far, 10_000);
    wait_until("paced", || rate(&near).is_some_and(|rate| rate <= 1_000_000));
    set_pacing(&near, None).unwrap();
    transfer(&mut near, &mut far, 10_000);
    wait_until("free", || rate(&near).is_some_and(|rate| rate > 1_000_000));
}

#[test]
fn what_is_not_read_is_counted() {
    let (mut near, far) = connected();
    near.write_all(&[1; 3_000]).unwrap();
    wait_until("arrived", || unread_bytes(&far).unwrap() == 3_000);
}
