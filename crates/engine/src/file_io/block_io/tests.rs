use super::*;
use crate::model::io_method::IoMethod;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::FileExt;
use std::thread;

/// Both ends of a connection.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let sender_end = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (sender_end, listener.accept().unwrap().0)
}

fn file_of(bytes: usize) -> (File, Vec<u8>) {
    let content: Vec<u8> = (0..bytes).map(|at| (at / 3 % 253) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&content).unwrap();
    (file, content)
}

/// Reports a test that is skipped here. Fails if `BANKFULL_MUST_DIRECT` is set in the environment.
#[track_caller]
pub(crate) fn cannot<T>(why: &str) -> Option<T> {
    assert!(std::env::var_os("BANKFULL_MUST_DIRECT").is_none(), "{why}");
    println!("skipped: {why}");
    None
}

/// Methods that this kernel supports.
fn methods() -> impl Iterator<Item = IoMethod> {
    IoMethod::ALL.into_iter().filter(|method| method.is_available())
}

/// Bytes that arrive, and the number that the sender reports.
fn sent(method: IoMethod, block: usize, file: &File, range: Range<u64>) -> (Vec<u8>, u64) {
    let (sender_end, mut receiver_end) = connection();
    thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let mut sender = method.sender(block).unwrap();
            sender.send(file, range, &sender_end).unwrap()
        });
        let mut arrived = Vec::new();
        receiver_end.read_to_end(&mut arrived).unwrap();
        (arrived, sending.join().unwrap())
    })
}

#[test]
fn every_method_sends_exactly_the_range() {
    let (file, content) = file_of(200_003);
    for method in methods() {
        for block in [1, 1000, 4096, 65_536, 1 << 20] {
            // Byte by byte is slow.
            let range = if method == IoMethod::Stream { 5..3000 } else { 4097..200_001 };
            let wanted = &content[range.start as usize..range.end as usize];
            // Blocks of one byte are slow for every method.
            let range = if block == 1 { range.start..range.start + 2000 } else { range };
            let wanted = &wanted[..(range.end - range.start) as usize];
            let (arrived, sent_bytes) = sent(method, block, &file, range);
            assert!(arrived == wanted, "{method}, blocks of {block}: {} bytes", arrived.len());
            assert_eq!(sent_bytes, wanted.len() as u64);
        }
    }
}

#[test]
fn file_that_ends_early_is_sent_to_its_end() {
    let (file, content) = file_of(10_000);
    for method in methods() {
        let (arrived, sent_bytes) = sent(method, 4096, &file, 1000..20_000);
        assert!(arrived == content[1000..], "{method}: {} bytes", arrived.len());
        assert_eq!(sent_bytes, 9000, "{method}");
        assert_eq!(sent(method, 4096, &file, 30_000..40_000), (Vec::new(), 0), "{method}");
    }
}

#[test]
fn file_truncated_during_send_does_not_crash() {
    for method in methods().filter(|&method| method != IoMethod::Stream) {
        let (file, content) = file_of(64 << 20);
        let (sender_end, mut receiver_end) = connection();
        thread::scope(|scope| {
            let file = &file;
            let sending = scope.spawn(move || {
                method
                    .sender(65_536)
                    .unwrap()
                    .send(file, 0..content.len() as u64, &sender_end)
                    .unwrap()
            });
            let mut chunk = vec![0; 1 << 20];
            receiver_end.read_exact(&mut chunk).unwrap();
            file.set_len(0).unwrap();
            let mut rest = Vec::new();
            receiver_end.read_to_end(&mut rest).unwrap();
            let sent_bytes = sending.join().unwrap();
            assert!(sent_bytes < 64 << 20, "{method} was faster than the cut");
            // The report is exact up to a block that was sent in part.
            let received = (chunk.len() + rest.len()) as u64;
            assert!(
                received >= sent_bytes && received - sent_bytes <= 65_536,
                "{method}: {received} of {sent_bytes}"
            );
        });
    }
}

#[test]
fn received_range_is_written_at_its_offset() {
    let content: Vec<u8> = (0..100_000u32).map(|at| (at % 239) as u8 + 1).collect();
    for method in [IoMethod::Buffered, IoMethod::Splice] {
        for block in [1000, 65_536] {
            let (sender_end, receiver_end) = connection();
            let file = tempfile::tempfile().unwrap();
            thread::scope(|scope| {
                let content = &content;
                scope.spawn(move || (&sender_end).write_all(content).unwrap());
                let mut receiver = method.receiver(block).unwrap();
                let range = 500..50_500;
                assert_eq!(receiver.receive(&receiver_end, &file, range).unwrap(), 50_000);
                // The sender ends early.
                let more = receiver.receive(&receiver_end, &file, 50_500..200_000).unwrap();
                assert_eq!(more, 50_000, "{method}");
            });
            let mut arrived = vec![0; 100_000];
            file.read_exact_at(&mut arrived, 500).unwrap();
            assert!(arrived == content, "{method}, blocks of {block}");
            assert_eq!(file.metadata().unwrap().len(), 100_500);
        }
    }
    let error = IoMethod::SendFile.receiver(1).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn method_names_parse_as_displayed() {
    for method in IoMethod::ALL {
        assert_eq!(method.name().parse(), Ok(method));
    }
    assert!("floppy".parse::<IoMethod>().unwrap_err().contains("zerobuffer"));
}
