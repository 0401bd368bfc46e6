use super::*;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::FileExt;
use std::thread;

/// The two ends of a connection.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn file_of(bytes: usize) -> (File, Vec<u8>) {
    let content: Vec<u8> = (0..bytes).map(|at| (at / 3 % 253) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&content).unwrap();
    (file, content)
}

/// What a test cannot do here, said. With `BANKFULL_MUST_DIRECT` in the environment it fails.
#[track_caller]
pub(crate) fn cannot<T>(why: &str) -> Option<T> {
    assert!(std::env::var_os("BANKFULL_MUST_DIRECT").is_none(), "{why}");
    println!("skipped: {why}");
    None
}

/// Those that this kernel has.
fn engines() -> impl Iterator<Item = Engine> {
    Engine::ALL.into_iter().filter(|engine| engine.is_available())
}

/// What arrives of a range, and what the sender says has gone.
fn sent(engine: Engine, block: usize, file: &File, range: Range<u64>) -> (Vec<u8>, u64) {
    let (near, mut far) = connection();
    thread::scope(|scope| {
        let sending = scope.spawn(move || {
            let mut sender = engine.sender(block).unwrap();
            sender.send(file, range, &near).unwrap()
        });
        let mut arrived = Vec::new();
        far.read_to_end(&mut arrived).unwrap();
        (arrived, sending.join().unwrap())
    })
}

#[test]
fn every_engine_sends_the_range_and_nothing_else_in_blocks_of_any_size() {
    let (file, content) = file_of(200_003);
    for engine in engines() {
        for block in [1, 1000, 4096, 65_536, 1 << 20] {
            // Byte by byte takes its time.
            let range = if engine == Engine::Stream { 5..3000 } else { 4097..200_001 };
            let wanted = &content[range.start as usize..range.end as usize];
            // A block of a byte is as slow for all.
            let range = if block == 1 { range.start..range.start + 2000 } else { range };
            let wanted = &wanted[..(range.end - range.start) as usize];
            let (arrived, gone) = sent(engine, block, &file, range);
            assert!(arrived == wanted, "{engine}, blocks of {block}: {} bytes", arrived.len());
            assert_eq!(gone, wanted.len() as u64);
        }
    }
}

#[test]
fn a_file_that_ends_early_is_sent_up_to_its_end() {
    let (file, content) = file_of(10_000);
    for engine in engines() {
        let (arrived, gone) = sent(engine, 4096, &file, 1000..20_000);
        assert!(arrived == content[1000..], "{engine}: {} bytes", arrived.len());
        assert_eq!(gone, 9000, "{engine}");
        assert_eq!(sent(engine, 4096, &file, 30_000..40_000), (Vec::new(), 0), "{engine}");
    }
}

#[test]
fn a_file_that_is_cut_while_it_is_sent_ends_no_process() {
    for engine in engines().filter(|&engine| engine != Engine::Stream) {
        let (file, content) = file_of(64 << 20);
        let (near, mut far) = connection();
        thread::scope(|scope| {
            let file = &file;
            let sending = scope.spawn(move || {
                engine.sender(65_536).unwrap().send(file, 0..content.len() as u64, &near).unwrap()
            });
            let mut piece = vec![0; 1 << 20];
            far.read_exact(&mut piece).unwrap();
            file.set_len(0).unwrap();
            let mut rest = Vec::new();
            far.read_to_end(&mut rest).unwrap();
            let gone = sending.join().unwrap();
            assert!(gone < 64 << 20, "{engine} was faster than the cut");
            // What it says has gone has gone, give or take a block that went in part.
            let came = (piece.len() + rest.len()) as u64;
            assert!(came >= gone && came - gone <= 65_536, "{engine}: {came} of {gone}");
        });
    }
}

#[test]
fn what_is_received_is_where_it_belongs_and_the_rest_stays() {
    let content: Vec<u8> = (0..100_000u32).map(|at| (at % 239) as u8 + 1).collect();
    for engine in [Engine::Buffered, Engine::Splice] {
        for block in [1000, 65_536] {
            let (near, far) = connection();
            let file = tempfile::tempfile().unwrap();
            thread::scope(|scope| {
                let content = &content;
                scope.spawn(move || (&near).write_all(content).unwrap());
                let mut receiver = engine.receiver(block).unwrap();
                let range = 500..50_500;
                assert_eq!(receiver.receive(&far, &file, range).unwrap(), 50_000);
                // The sender ends first.
                let more = receiver.receive(&far, &file, 50_500..200_000).unwrap();
                assert_eq!(more, 50_000, "{engine}");
            });
            let mut arrived = vec![0; 100_000];
            file.read_exact_at(&mut arrived, 500).unwrap();
            assert!(arrived == content, "{engine}, blocks of {block}");
            assert_eq!(file.metadata().unwrap().len(), 100_500);
        }
    }
    let error = Engine::SendFile.receiver(1).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn names_are_read_as_they_are_written() {
    for engine in Engine::ALL {
        assert_eq!(engine.name().parse(), Ok(engine));
    }
    assert!("floppy".parse::<Engine>().unwrap_err().contains("zerobuffer"));
}
