//! A recorded session: what each side sent, in order.

use bankfull_proto::limits::MAX_CONTROL_FRAME_BYTES;
use bankfull_proto::wire::attach::{REPLY_BYTES, REQUEST_BYTES};
use bankfull_proto::wire::control::{self, Message};
use bankfull_proto::wire::data::{HEADER_BYTES, Header, TAG_BYTES, unpack};
use std::fmt::Write;

/// Repetitions of a byte from which they are counted.
const MIN_RUN: usize = 16;

/// Connection of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    /// The control connection, without its magic; a line is a frame.
    Control,
    /// The only data stream, from the attach request on.
    Data,
}

/// Bytes that one side sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) from_client: bool,
    pub(super) channel: Channel,
    pub(super) bytes: Vec<u8>,
}

/// Formats a recording; each frame has its message as a comment.
pub(super) fn format(about: &str, lines: &[Line]) -> String {
    let mut text = format!("# {about}\n");
    for line in lines {
        let side = if line.from_client { "client" } else { "server" };
        let channel = match line.channel {
            Channel::Control => {
                let _ = writeln!(text, "# {}", name_of(&message(&line.bytes)));
                "control"
            }
            Channel::Data => "data",
        };
        let _ = writeln!(text, "{side} {channel} {}", hex(&line.bytes));
    }
    text
}

/// Formats bytes: two digits each, and `*N` behind one that repeats.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for run in bytes.chunk_by(|a, b| a == b) {
        let byte = format!("{:02x}", run[0]);
        match run.len() {
            MIN_RUN.. => text += &format!("{byte}*{};", run.len()),
            few => text += &byte.repeat(few),
        }
    }
    text
}

/// Parses a recording.
pub(super) fn parse(text: &str) -> Vec<Line> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [side, channel, hex] = words[..] else { panic!("no recording: {line}") };
            let channel = match channel {
                "control" => Channel::Control,
                _ => Channel::Data,
            };
            Line { from_client: side == "client", channel, bytes: unhex(hex) }
        })
        .collect()
}

fn unhex(mut hex: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some((digits, rest)) = hex.split_at_checked(2) {
        let byte = u8::from_str_radix(digits, 16).expect("hexadecimal digits");
        let run = rest.strip_prefix('*').and_then(|rest| rest.split_once(';'));
        let (count, rest) = run.map_or((1, rest), |(count, rest)| (count.parse().unwrap(), rest));
        bytes.resize(bytes.len() + count, byte);
        hex = rest;
    }
    bytes
}

/// Decodes a frame of the control connection.
pub(super) fn message(frame: &[u8]) -> Message {
    assert!(frame.len() <= MAX_CONTROL_FRAME_BYTES + 4);
    control::decode(&frame[4..]).expect("a message of this protocol")
}

/// Returns the name of a message.
fn name_of(message: &Message) -> String {
    let text = format!("{message:?}");
    text.split('(').next().unwrap_or_default().to_owned()
}

/// True for messages that depend on time alone: heartbeats, and measurements of the path.
pub(super) fn is_timed(message: &Message) -> bool {
    matches!(
        message,
        Message::Ping
            | Message::RateRequest(_)
            | Message::SenderReport(_)
            | Message::TrainRequest(_)
            | Message::ReceiverReport(_)
    )
}

/// Returns the items of a message per file, which several messages may carry instead.
pub(super) fn subjects(message: &Message) -> Vec<String> {
    let of = |what: &str, ids: &mut dyn Iterator<Item = u64>| -> Vec<String> {
        ids.map(|id| format!("{what} {id}")).collect()
    };
    match message {
        Message::Entries(entries) => of("entry", &mut entries.iter().map(|entry| entry.id)),
        Message::Wants(wants) => of("want", &mut wants.iter().map(|want| want.file)),
        Message::Acks(acks) => of("ack", &mut acks.iter().map(|ack| ack.file)),
        Message::Finished(files) => of("finished", &mut files.iter().copied()),
        Message::Unchanged(files) => of("unchanged", &mut files.iter().copied()),
        Message::FileDigest(digest) => of("digest", &mut [digest.file].into_iter()),
        timed if is_timed(timed) => Vec::new(),
        other => vec![name_of(other)],
    }
}

/// Bytes of a data stream, which become frames.
#[derive(Debug, Default)]
pub(super) struct DataFrames {
    bytes: Vec<u8>,
    /// Bytes before the first frame that are still to come: the attach request or its reply.
    skip: usize,
}

impl DataFrames {
    /// Frames that a side sends.
    pub(super) fn of(from_client: bool) -> Self {
        let skip = if from_client { REQUEST_BYTES } else { REPLY_BYTES };
        Self { bytes: Vec::new(), skip }
    }

    /// Adds bytes; returns what the frames complete so far hold.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        self.bytes.extend_from_slice(bytes);
        let skipped = self.skip.min(self.bytes.len());
        self.bytes.drain(..skipped);
        self.skip -= skipped;
        let mut found = Vec::new();
        while let Some(head) = self.bytes.first_chunk::<HEADER_BYTES>() {
            let header = Header::decode(head).expect("a data frame");
            let (len, has_tag) = match header {
                Header::End => (0, false),
                Header::Block { len, .. } | Header::Pack { len, .. } => (len as usize, true),
                Header::Filler { .. } => panic!("filler in a copy"),
            };
            let end = HEADER_BYTES + len;
            let whole = end + if has_tag { TAG_BYTES } else { 0 };
            if self.bytes.len() < whole {
                break;
            }
            let frame: Vec<u8> = self.bytes.drain(..whole).collect();
            found.extend(held(header, &frame[HEADER_BYTES..end], &frame[end..]));
        }
        found
    }
}

/// Returns the contents of a frame: their places, and their hashes.
fn held(header: Header, payload: &[u8], tag: &[u8]) -> Vec<String> {
    match header {
        Header::Block { file, offset, .. } => {
            vec![format!("block {file} {offset} {}", hex(tag))]
        }
        Header::Pack { count, .. } => {
            let files = unpack(payload, count).expect("a pack");
            files.iter().map(|one| format!("packed {} {}", one.file, hex(&one.hash))).collect()
        }
        Header::End | Header::Filler { .. } => vec!["end of data".to_owned()],
    }
}

#[test]
fn recording_parses_as_formatted() {
    let ping = control::encode(&Message::Ping).unwrap();
    let lines = [
        Line { from_client: true, channel: Channel::Control, bytes: ping },
        Line {
            from_client: false,
            channel: Channel::Data,
            bytes: [vec![7; 3], vec![b'x'; 1000], vec![0; 15], vec![1, 2]].concat(),
        },
    ];
    let text = format("two lines", &lines);
    assert!(text.contains("070707") && text.contains("78*1000;") && text.contains("# Ping\n"));
    assert_eq!(parse(&text), lines);
}
