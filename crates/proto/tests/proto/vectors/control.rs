//! Vectors of the control channel: every message as a frame with its length prefix.

use super::Vector;
use super::notation::diagnostic;
use crate::support::runs;
use bankfull_proto::blocks::Run;
use bankfull_proto::limits::MAX_CONTROL_FRAME_BYTES;
use bankfull_proto::wire::control::{
    self, Aborted, Bytes, Cause, ComparisonRules, Credit, Direction, Entry, EntryKind, Failed,
    Failure, FileDigest, Fsync, Hello, KeyProof, Message, Nack, Open, Opened, PathBytes, Problem,
    RateRequest, ReceiverReport, SenderReport, SideSummary, Source, Totals, Verdict, WalkRules,
    Want, Welcome,
};
use bankfull_proto::wire::frame::{FrameReader, PREFIX_BYTES};

/// Returns bytes that count up from `first`.
pub(super) fn counting<const N: usize>(first: u8) -> [u8; N] {
    std::array::from_fn(|at| first.wrapping_add(at as u8))
}

/// Returns the body of a single frame.
fn body(bytes: &[u8]) -> Vec<u8> {
    let mut reader = FrameReader::new(MAX_CONTROL_FRAME_BYTES);
    reader.push(bytes);
    let frame = reader.next_frame().unwrap().unwrap().to_vec();
    assert!(reader.is_at_frame_boundary());
    frame
}

/// Returns the vector of one message.
pub(super) fn message(name: &'static str, about: &str, message: Message) -> Vector {
    let bytes = control::encode(&message).unwrap();
    let about = format!("{about}\n{}", diagnostic(&bytes[PREFIX_BYTES..]));
    Vector::new(name, about, bytes, move |bytes| {
        let decoded = control::decode(&body(bytes)).unwrap();
        assert_eq!(decoded, message);
        control::encode(&decoded).unwrap()
    })
}

pub(super) fn vectors() -> Vec<Vector> {
    [handshake(), announcements(), answers(), transfer(), ends(), feedback(), tunnel()]
        .into_iter()
        .flatten()
        .collect()
}

pub(super) fn path(bytes: &[u8]) -> PathBytes {
    PathBytes(bytes.to_vec())
}

fn failure(cause: Cause, text: &str) -> Failure {
    Failure::new(cause, text)
}

fn key_proof() -> KeyProof {
    KeyProof { public: counting(0x20), signature: counting(0x40) }
}

fn handshake() -> Vec<Vector> {
    let hello = Hello {
        min_version: 1,
        max_version: 1,
        software: "bankfull 0.1.0".to_owned(),
        ..Hello::default()
    };
    let with_key = Hello { key: Some(key_proof()), ..hello.clone() };
    let with_token = Hello { token: Some(b"sesame".to_vec()), ..hello.clone() };
    let daemon = Welcome {
        version: 1,
        software: "bankfull 0.1.0".to_owned(),
        session: counting(0x00),
        session_key: counting(0x20),
        max_streams: 64,
        unencrypted_allowed: false,
        data_port: None,
        data_hosts: Vec::new(),
        fingerprint: None,
        timeout_ms: Some(60_000),
    };
    let agent = Welcome {
        unencrypted_allowed: true,
        data_port: Some(40_001),
        data_hosts: vec!["192.0.2.7".to_owned(), "2001:db8::7".to_owned()],
        fingerprint: Some(counting(0x80)),
        timeout_ms: None,
        ..daemon.clone()
    };
    vec![
        message("hello", "Hello without a token.", Message::Hello(hello)),
        message("hello-token", "Hello with a token.", Message::Hello(with_token)),
        message("hello-key", "Hello with a proof of a client key.", Message::Hello(with_key)),
        newer_hello(),
        message("welcome", "Welcome of a daemon.", Message::Welcome(daemon)),
        message("welcome-agent", "Welcome of an ssh agent.", Message::Welcome(agent)),
        message("open-push", "Open: push of a file and a directory.", open_push()),
        message("open-pull", "Open: pull of two sources.", open_pull()),
        message("open-overrides", OVERRIDES, open_overrides()),
        message("open-credit", "Open: the client offers to grant credit.", open_credit()),
        message(
            "open-max-outstanding",
            "Open: at most 4096 outstanding files.",
            open_max_outstanding(),
        ),
        message(
            "open-trust-journal",
            "Open: push that takes the blocks of an earlier session without a check.",
            open_trust_journal(),
        ),
        message("open-tune-sobas", "Open: push that SOBAS tunes.", open_tune_sobas()),
        message("open-filters", "Open: pull with three filter rules.", open_filters()),
        message(
            "open-walk",
            "Open: pull that follows symlinks to directories, of files of 1 to 4096 bytes, three \
             levels deep.",
            open_walk(),
        ),
        message(
            "open-comparison",
            "Open: push that updates what exists, with a window of 2 s.",
            open_comparison(),
        ),
        message("opened-push", "Opened, the answer to open-push.", opened_push()),
        message("opened-pull", "Opened, the answer to open-pull.", opened_pull()),
        message("opened-credit", "Opened: file data needs credit.", opened_credit()),
    ]
}

/// Returns a Hello of a later version, whose unknown keys are skipped.
fn newer_hello() -> Vector {
    let mut cbor = Vec::new();
    let mut e = minicbor::Encoder::new(&mut cbor);
    e.array(2).unwrap().u8(0).unwrap().array(1).unwrap().map(5).unwrap();
    e.u8(0).unwrap().u8(1).unwrap().u8(1).unwrap().u8(9).unwrap().u8(2).unwrap().str("x").unwrap();
    e.u8(40).unwrap().map(1).unwrap().u8(0).unwrap().array(2).unwrap();
    e.bool(true).unwrap().bytes(&[1, 2]).unwrap().u16(300).unwrap().null().unwrap();
    let frame = [&(cbor.len() as u32).to_be_bytes()[..], &cbor].concat();
    let about = "Hello of a later version, whose unknown keys 40 and 300 are skipped. Reads as\n\
                 min_version 1, max_version 9, software \"x\", no token. Encoded again without\n\
                 these keys.";
    Vector::new("hello-newer", about, frame.clone(), move |bytes| {
        let software = "x".to_owned();
        let known = Hello { min_version: 1, max_version: 9, software, ..Hello::default() };
        assert_eq!(control::decode(&body(bytes)), Ok(Message::Hello(known)));
        frame.clone()
    })
}

fn open_push() -> Message {
    Message::Open(Open {
        direction: Direction::Push,
        paths: vec![path(b"incoming/")],
        sources: vec![
            Source {
                name: b"notes.txt".to_vec(),
                is_dir: false,
                contents: false,
                open_ended: None,
            },
            Source { name: b"tree".to_vec(), is_dir: true, contents: false, open_ended: None },
        ],
        fsync: Fsync::File,
        checksum: false,
        dry_run: false,
        unencrypted: false,
        streams: 4,
        timeout_ms: 60_000,
        ..Open::default()
    })
}

fn open_pull() -> Message {
    Message::Open(Open {
        direction: Direction::Pull,
        paths: vec![path(b"data/"), path(b"caf\xe9")],
        sources: Vec::new(),
        fsync: Fsync::None,
        checksum: true,
        dry_run: true,
        unencrypted: true,
        streams: 1,
        timeout_ms: 0,
        ..Open::default()
    })
}

const OVERRIDES: &str = "Open: pull of a file with BBR, at most 12.5 MB/s, a window of 4 MB,\n\
    at most 64 streams, the I/O method zerobuffer, blocks of 4 MiB, no page cache, no tuning.";

fn open_overrides() -> Message {
    Message::Open(Open {
        direction: Direction::Pull,
        paths: vec![path(b"data")],
        sources: Vec::new(),
        fsync: Fsync::End,
        checksum: false,
        dry_run: false,
        unencrypted: false,
        streams: 4,
        timeout_ms: 60_000,
        autotune_off: Some(true),
        rate_max: Some(12_500_000),
        window: Some(4_000_000),
        congestion: Some("bbr".to_owned()),
        throughput_test_ms: None,
        cached_path: None,
        max_streams: Some(64),
        credit: None,
        io_method: Some("zerobuffer".to_owned()),
        block_bytes: Some(4 << 20),
        direct: Some(true),
        max_outstanding_files: None,
        trust_journal: None,
        filters: None,
        metadata: None,
        delete: None,
        earlier: None,
        remove_sources: None,
        itemize: None,
        rate_changes: None,
        tune_sobas: None,
        walk: None,
        comparison: None,
    })
}

fn open_filters() -> Message {
    let rule = |text: &[u8]| Bytes(text.to_vec());
    Message::Open(Open {
        direction: Direction::Pull,
        paths: vec![path(b"src/")],
        fsync: Fsync::End,
        streams: 2,
        timeout_ms: 60_000,
        filters: Some(vec![rule(b"+ *.c"), rule(b"-s /build/"), rule(b":n .rules")]),
        ..Open::default()
    })
}

fn open_tune_sobas() -> Message {
    Message::Open(Open {
        direction: Direction::Push,
        paths: vec![path(b"in/")],
        fsync: Fsync::End,
        streams: 2,
        timeout_ms: 60_000,
        tune_sobas: Some(true),
        ..Open::default()
    })
}

fn open_trust_journal() -> Message {
    Message::Open(Open {
        direction: Direction::Push,
        paths: vec![path(b"in/")],
        fsync: Fsync::End,
        streams: 2,
        timeout_ms: 60_000,
        trust_journal: Some(true),
        ..Open::default()
    })
}

fn open_max_outstanding() -> Message {
    Message::Open(Open {
        direction: Direction::Pull,
        paths: vec![path(b"photos/")],
        fsync: Fsync::End,
        streams: 2,
        timeout_ms: 60_000,
        autotune_off: Some(true),
        max_outstanding_files: Some(4096),
        ..Open::default()
    })
}

fn open_credit() -> Message {
    Message::Open(Open {
        direction: Direction::Pull,
        paths: vec![path(b"logs")],
        streams: 1,
        credit: Some(true),
        ..Open::default()
    })
}

fn open_walk() -> Message {
    let walk = WalkRules {
        copy_dirlinks: true,
        min_size: Some(1),
        max_size: Some(4096),
        max_depth: Some(3),
        ..WalkRules::default()
    };
    Message::Open(Open {
        direction: Direction::Pull,
        paths: vec![path(b"logs")],
        streams: 1,
        walk: Some(walk),
        ..Open::default()
    })
}

fn open_comparison() -> Message {
    let comparison = ComparisonRules {
        update: true,
        existing_only: true,
        modify_window: Some(2),
        ..ComparisonRules::default()
    };
    Message::Open(Open {
        paths: vec![path(b"incoming/")],
        sources: vec![Source {
            name: b"logs".to_vec(),
            is_dir: true,
            contents: false,
            open_ended: None,
        }],
        streams: 1,
        comparison: Some(comparison),
        ..Open::default()
    })
}

fn opened_push() -> Message {
    let destinations = vec![path(b"incoming/notes.txt"), path(b"incoming/tree")];
    Message::Opened(Opened { destinations, max_outstanding_files: Some(4096), ..Opened::default() })
}

fn opened_pull() -> Message {
    let sources = vec![
        Source { name: Vec::new(), is_dir: true, contents: true, open_ended: None },
        Source { name: b"caf\xe9".to_vec(), is_dir: false, contents: false, open_ended: None },
    ];
    Message::Opened(Opened { sources, ..Opened::default() })
}

fn opened_credit() -> Message {
    let source = Source { name: b"logs".to_vec(), is_dir: true, contents: false, open_ended: None };
    Message::Opened(Opened { sources: vec![source], credit: Some(true), ..Opened::default() })
}

pub(super) fn file(id: u64, parent: u64, name: &[u8]) -> Entry {
    Entry {
        id,
        parent,
        name: name.to_vec(),
        kind: EntryKind::File,
        mode: 0o644,
        mtime_secs: 1_700_000_000,
        mtime_nanos: 123_456_789,
        size: 11,
        version: 0x0123_4567_89ab_cdef,
        uid: 1000,
        gid: 100,
        block_bytes: 0,
        sparse: false,
        target: Vec::new(),
        extra: None,
    }
}

fn entries() -> Vec<Entry> {
    let root = Entry { kind: EntryKind::Dir, mode: 0o755, size: 0, ..file(1, 0, b"") };
    let dir = Entry { kind: EntryKind::Dir, mode: 0o2750, size: 0, ..file(2, 1, b"sub") };
    let link = Entry {
        kind: EntryKind::Symlink,
        mode: 0o777,
        size: 0,
        target: b"../elsewhere".to_vec(),
        ..file(4, 2, b"link")
    };
    let old = Entry { mtime_secs: -1, mtime_nanos: 999_999_999, ..file(5, 1, b"caf\xe9\n") };
    let sparse = Entry {
        size: 5 << 30,
        block_bytes: 8 << 20,
        sparse: true,
        mode: 0o4711,
        ..file(6, 1, b"disk.img")
    };
    vec![root, dir, file(3, 2, b"small"), link, old, sparse]
}

fn announcements() -> Vec<Vector> {
    let about = "Entries: the destination itself (1), a directory in it (2), a packed file (3)\n\
                 in (2), a symlink (4), a file from before 1970 with a name that is not UTF-8 \
                 (5),\n\
                 a sparse file of 5 GiB in blocks of 8 MiB (6).";
    let totals =
        Totals { files: 3, dirs: 2, symlinks: 1, bytes: (5 << 30) + 22, special_files_skipped: 7 };
    let problem = Problem {
        path: path(b"data/locked"),
        failure: failure(Cause::Permission, "cannot read data/locked: permission denied"),
    };
    let warning = Problem {
        path: path(b"data/socket"),
        failure: failure(Cause::Warning, "left out data/socket: neither file nor link"),
    };
    vec![
        message("entries", about, Message::Entries(entries())),
        message("entries-end", "EntriesEnd.", Message::EntriesEnd(totals)),
        message("problem", "Problem.", Message::Problem(problem)),
        message(
            "problem-warning",
            "Problem with a warning: no failure.",
            Message::Problem(warning),
        ),
    ]
}

fn answers() -> Vec<Vector> {
    let want = |file, verdict| Want {
        file,
        verdict,
        have: Vec::new(),
        hash: None,
        failure: None,
        accepts_early_digest: None,
    };
    let have = vec![Run { first: 0, count: 3 }, Run { first: 639, count: 1 }];
    let refused = failure(Cause::IsADirectory, "a directory is in the way");
    let wants = vec![
        Want { have, ..want(6, Verdict::Send) },
        want(3, Verdict::Skip),
        Want { hash: Some(counting(0xa0)), ..want(5, Verdict::IfDiffers) },
        Want { failure: Some(refused), ..want(4, Verdict::Refused) },
        want(7, Verdict::WouldSend),
    ];
    vec![
        message("wants", "Wants: every verdict once.", Message::Wants(wants)),
        message(
            "wants-early-digest",
            "Wants: a file that accepts an early file digest.",
            Message::Wants(vec![Want {
                accepts_early_digest: Some(true),
                ..want(8, Verdict::Send)
            }]),
        ),
        message(
            "credits",
            "Credits: two data streams may send.",
            Message::Credits(vec![
                Credit { stream: 0, bytes: 65_536 },
                Credit { stream: 7, bytes: 1 << 33 },
            ]),
        ),
        message("have", "Have.", Message::Have(runs(6, &[(10, 2), (100, 300)]))),
        message("unchanged", "Unchanged.", Message::Unchanged(vec![5])),
        message(
            "completed-dirs",
            "CompletedDirs: two directories.",
            Message::CompletedDirs(vec![2, 70_000]),
        ),
        message("list-request", "ListRequest.", Message::ListRequest),
        message(
            "list-part",
            "ListPart: a file, and a directory with what is directly in it.",
            Message::ListPart(vec![path(b"a/f"), path(b"b/")]),
        ),
        message("differs", "Differs, in a dry run.", Message::Differs(vec![5, 70_000])),
    ]
}

fn transfer() -> Vec<Vector> {
    let acks = vec![runs(6, &[(0, 1), (2, 70_000)]), runs(8, &[(1, 1)])];
    let hashed = FileDigest { file: 8, hash: Some(counting(0xc0)) };
    let aborted = Aborted {
        file: 6,
        failure: failure(Cause::SourceChanged, "disk.img changed while it was read"),
        will_retry: true,
    };
    let failed = Failed { file: 8, failure: failure(Cause::NoSpace, "the disk is full") };
    vec![
        message("holes", "Holes.", Message::Holes(runs(6, &[(3, 2), (9, 1)]))),
        message("acks", "Acks of two files.", Message::Acks(acks)),
        message("nack", "Nack.", Message::Nack(Nack { file: 6, index: 4 })),
        message(
            "file-digest",
            "FileDigest.",
            Message::FileDigest(FileDigest { file: 6, hash: None }),
        ),
        message(
            "file-digest-hash",
            "FileDigest with the hash of the file.",
            Message::FileDigest(hashed),
        ),
        message(
            "early-file-digest",
            "EarlyFileDigest.",
            Message::EarlyFileDigest(FileDigest { file: 8, hash: None }),
        ),
        message("aborted", "Aborted; the file will be announced again.", Message::Aborted(aborted)),
        message("finished", "Finished.", Message::Finished(vec![3, 4, 8])),
        message("failed", "Failed.", Message::Failed(failed)),
        message("stream-lost", "StreamLost.", Message::StreamLost(2)),
        message("stream-ended", "StreamEnded.", Message::StreamEnded(2)),
    ]
}

fn ends() -> Vec<Vector> {
    let sender = SideSummary {
        stage_nanos: [1, 2, 3_000_000_000, 0, 5],
        retransmits: 6,
        failed: 7,
        created: None,
    };
    let receiver =
        SideSummary { stage_nanos: [0, 2, 3, 4, 5], retransmits: 0, failed: 1, created: None };
    let error = failure(Cause::BadToken, "the token is wrong");
    vec![
        message("finish", "Finish.", Message::Finish(sender)),
        message("done", "Done.", Message::Done(receiver)),
        message("error", "Error.", Message::Error(error)),
        message("ping", "Ping.", Message::Ping),
    ]
}

fn feedback() -> Vec<Vector> {
    vec![
        message(
            "rate-request",
            "RateRequest: 118 MB/s over two data streams with BBR.",
            Message::RateRequest(RateRequest {
                bytes_per_sec: Some(118_000_000),
                streams: Some(2),
                use_bbr: Some(true),
            }),
        ),
        message(
            "rate-request-unlimited",
            "RateRequest: no limit.",
            Message::RateRequest(RateRequest::default()),
        ),
        message(
            "sender-report",
            "SenderReport: 17 retransmits, 2 of them spurious; 3 of 400 samples app-limited; an\n\
             RTT of 20.25 ms.",
            Message::SenderReport(SenderReport {
                retransmits: 17,
                samples: 400,
                app_limited: 3,
                rtt_us: Some(20_250),
                window: Some(2_400_000),
                stage_nanos: Some([1, 2, 3_000_000_000, 0, 5]),
                cpus: Some(8),
                max_inflight_bytes: Some(2_097_152),
                bbr_available: Some(true),
                cpu_nanos: Some(700_000_000),
                spurious_retransmits: Some(2),
            }),
        ),
        message(
            "train-request",
            "TrainRequest: trains of 176 packets.",
            Message::TrainRequest(176),
        ),
        message(
            "receiver-report",
            "ReceiverReport: a new window of 2.4 MB and rate of 118 MB/s, with a reason.",
            Message::ReceiverReport(ReceiverReport {
                state: "limited".to_owned(),
                window: Some(2_400_000),
                bytes_per_sec: Some(118_000_000),
                rtts_us: vec![20_250, 20_180],
                samples: 400,
                receiver_limited: 5,
                reason: Some("a queue of 1.2 ms stood".to_owned()),
                stage_nanos: Some([0, 2, 3, 4, 5]),
                capacity: Some(120_000_000),
                probes: 57,
                probes_lost: 1,
                streams: Some(2),
                buffered_peak: Some(1_572_864),
                buffer_limit: Some(6_291_456),
                buffer_reason: Some("less waited for seconds".to_owned()),
                controller: None,
            }),
        ),
        message(
            "receiver-report-empty",
            "ReceiverReport: no limits.",
            Message::ReceiverReport(ReceiverReport::default()),
        ),
    ]
}

fn tunnel() -> Vec<Vector> {
    vec![
        message("tunnel", "Tunnel: five bytes.", Message::Tunnel(Bytes(b"bytes".to_vec()))),
        message("tunnel-end", "Tunnel: end.", Message::Tunnel(Bytes(Vec::new()))),
    ]
}
