//! Barrier rounds in a program that is independent of bankfull:
//!
//!     rounds serve ADDRESS...                 answers each request with as many bytes
//!     rounds fetch ROUNDS BYTES ADDRESS...    a round: BYTES from each, all at once
//!
//! `fetch` keeps its connections, and prints the duration of each round in seconds.

use std::env;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

const BLOCK_BYTES: usize = 64 << 10;

fn main() -> io::Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", addresses @ ..] if !addresses.is_empty() => serve(addresses),
        ["fetch", rounds, bytes, addresses @ ..] if !addresses.is_empty() => {
            let number = |word: &str| word.parse::<u64>().map_err(io::Error::other);
            fetch(number(rounds)?, number(bytes)?, addresses)
        }
        _ => {
            Err(io::Error::other("rounds serve ADDRESS... | rounds fetch ROUNDS BYTES ADDRESS..."))
        }
    }
}

fn serve(addresses: &[&str]) -> io::Result<()> {
    let listeners: Vec<TcpListener> =
        addresses.iter().map(TcpListener::bind).collect::<io::Result<_>>()?;
    thread::scope(|scope| {
        for listener in &listeners {
            scope.spawn(move || {
                for stream in listener.incoming().flatten() {
                    // Ends with the connection.
                    thread::spawn(move || answer(stream));
                }
            });
        }
    });
    Ok(())
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let block = vec![0x55; BLOCK_BYTES];
    let mut request = [0; 8];
    loop {
        stream.read_exact(&mut request)?;
        let mut left = u64::from_le_bytes(request);
        while left > 0 {
            let part = left.min(BLOCK_BYTES as u64);
            stream.write_all(&block[..part as usize])?;
            left -= part;
        }
    }
}

fn fetch(rounds: u64, bytes: u64, addresses: &[&str]) -> io::Result<()> {
    let connect = |address: &&str| TcpStream::connect(address);
    let streams: Vec<TcpStream> = addresses.iter().map(connect).collect::<io::Result<_>>()?;
    let (start, end) = (Barrier::new(streams.len() + 1), Barrier::new(streams.len() + 1));
    let mut out = io::stdout();
    thread::scope(|scope| {
        for mut stream in streams {
            let (start, end) = (&start, &end);
            scope.spawn(move || {
                let mut block = vec![0; BLOCK_BYTES];
                for _ in 0..rounds {
                    start.wait();
                    let done = read_answer(&mut stream, bytes, &mut block);
                    end.wait();
                    // The others would wait for it forever.
                    if done.is_err() {
                        std::process::exit(1);
                    }
                }
            });
        }
        for _ in 0..rounds {
            // Before the others may begin: this thread may wake last.
            let began = Instant::now();
            start.wait();
            end.wait();
            writeln!(out, "{:.6}", began.elapsed().as_secs_f64())?;
        }
        Ok(())
    })
}

fn read_answer(stream: &mut TcpStream, bytes: u64, block: &mut [u8]) -> io::Result<()> {
    stream.write_all(&bytes.to_le_bytes())?;
    let mut left = bytes;
    while left > 0 {
        match stream.read(block)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            part => left -= part as u64,
        }
    }
    Ok(())
}
