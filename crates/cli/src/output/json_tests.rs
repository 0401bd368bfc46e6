//! Tests of the JSON lines with synthetic events.

use super::super::handles::testing::{Buffer, buffers};
use super::*;
use bankfull::{Bytes, Error, ErrorKind, Fingerprint, ServerLimits};
use std::ffi::OsStr;

fn json() -> (Json, Buffer, Buffer) {
    let (output, out, err) = buffers();
    (Json::new(output, true), out, err)
}

fn lines_of(events: &[Event]) -> Vec<String> {
    let (mut json, out, _) = json();
    events.iter().for_each(|event| json.event(event));
    out.lines()
}

fn begin_copy(json: &mut Json) {
    json.begin(&Beginning::Copy {
        sources: vec!["a".into()],
        destination: "host:b".into(),
        dry_run: false,
    });
}

fn failed(path: &OsStr) -> Event {
    let (message, cause) = ("it\n\"broke\"".to_owned(), "source-vanished");
    Event::FileFailed { path: path.into(), message, cause, vanished: true }
}

#[test]
fn event_has_its_object() {
    let events = [
        Event::Connected {
            route: bankfull::Route::SshOnly,
            software: "x 1".to_owned(),
            encrypted: true,
            at: Duration::from_millis(50),
        },
        Event::Destination { source: "a".into(), destination: "/b/a".into() },
        Event::Completed {
            path: "a/f".into(),
            outcome: Outcome::Copied,
            bytes: Bytes(7),
            blake3: Some("ab".to_owned()),
        },
        Event::Completed {
            path: "a/g".into(),
            outcome: Outcome::WouldCopy,
            bytes: Bytes(0),
            blake3: None,
        },
        failed(OsStr::new("a/h")),
        Event::Warning { message: "careful".to_owned() },
        Event::ClientConnected { peer: "[::1]:9".to_owned() },
        Event::ClientDone {
            peer: "[::1]:9".to_owned(),
            request: None,
            result: Err(Error::new(ErrorKind::Refused, "wrong token")),
        },
    ];
    assert_eq!(
        lines_of(&events),
        [
            r#"{"event":"connected","at_seconds":0.05,"route":"ssh-only","software":"x 1","encrypted":true}"#,
            r#"{"event":"destination","source":"a","destination":"/b/a"}"#,
            r#"{"event":"file","path":"a/f","outcome":"copied","bytes":7,"blake3":"ab"}"#,
            r#"{"event":"file","path":"a/g","outcome":"would-copy","bytes":0,"blake3":null}"#,
            r#"{"event":"file_failed","path":"a/h","message":"it\n\"broke\"","cause":"source-vanished","vanished":true}"#,
            r#"{"event":"warning","message":"careful"}"#,
            r#"{"event":"client_connected","peer":"[::1]:9"}"#,
            r#"{"event":"client_done","peer":"[::1]:9","ok":false,"message":"wrong token"}"#,
        ]
    );
}

#[test]
fn invalid_utf8_path_has_hexadecimal_bytes() {
    let lines = lines_of(&[failed(OsStr::from_bytes(b"a\xff"))]);
    assert!(
        lines[0].starts_with(
            "{\"event\":\"file_failed\",\"path\":\"a\u{fffd}\",\"path_hex\":\"61ff\","
        )
    );
}

#[test]
fn first_line_is_start_and_last_line_is_summary() {
    let (mut json, out, _) = json();
    begin_copy(&mut json);
    json.event(&failed(OsStr::new("x")));
    json.tick(&Progress::default(), Duration::from_millis(100));
    let mut summary = Summary::default();
    (summary.files, summary.bytes, summary.streams) = (2, Bytes(1_000_000), 4);
    (summary.failed_files, summary.elapsed) = (1, Duration::from_millis(1000));
    summary.limited_by = "network";
    json.end(&Ending::Copied(&summary));
    let lines = out.lines();
    assert!(lines[0].starts_with(
        r#"{"event":"start","schema":1,"version":"0.1.0","sources":["a"],"destination":"host:b","dry_run":false"#
    ));
    assert_eq!(
        lines[lines.len() - 1],
        concat!(
            r#"{"event":"summary","files":2,"dirs":0,"symlinks":0,"bytes":1000000,"#,
            r#""wire_bytes":0,"seconds":1.0,"goodput_bps":8000000,"streams":4,"retransmits":0,"#,
            r#""resumed_bytes":0,"damaged_bytes":0,"dirs_created":0,"hard_links_created":0,"#,
            r#""special_files_created":0,"linked_files":0,"skipped_files":0,"skipped_bytes":0,"#,
            r#""left_out_files":0,"left_out_bytes":0,"would_copy_entries":0,"#,
            r#""would_copy_bytes":0,"deleted":0,"failed_files":1,"vanished_files":0,"hard_links":0,"#,
            r#""special_files":0,"special_files_skipped":0,"#,
            r#""limited_by":"network","exit_code":23}"#
        )
    );
    for line in lines {
        let value: Value = serde_json::from_str(&line).unwrap();
        assert!(value["event"].is_string(), "{line}");
    }
}

#[test]
fn fatal_error_is_the_last_line_and_on_stderr() {
    let (mut json, out, err) = json();
    begin_copy(&mut json);
    json.end(&Ending::Failed(&Error::new(ErrorKind::AgentStart, "no ssh")));
    assert_eq!(
        out.lines()[1..],
        [r#"{"event":"error","kind":"agent-start","message":"no ssh","exit_code":14}"#]
    );
    assert_eq!(err.text(), "bankfull: no ssh\n");
}

#[test]
fn progress_is_written_once_per_second() {
    let (mut json, out, _) = json();
    let mut progress = Progress::default();
    progress.bytes_total = Bytes(4_000_000);
    progress.total_is_final = true;
    for tenths in 1..=21 {
        progress.elapsed = Duration::from_millis(100 * tenths);
        progress.bytes_moved = Bytes(100_000 * tenths);
        (progress.bytes_done, progress.bytes_carried) =
            (progress.bytes_moved, progress.bytes_moved);
        json.tick(&progress, progress.elapsed);
    }
    let lines = out.lines();
    assert_eq!(lines.len(), 3);
    assert_eq!(
        lines[2],
        concat!(
            r#"{"event":"progress","files_done":0,"files_total":0,"bytes_done":2100000,"#,
            r#""bytes_total":4000000,"total_is_final":true,"bytes_unchecked":0,"bytes_moved":2100000,"bytes_carried":2100000,"seconds":2.1,"#,
            r#""rate_bps":8000000,"average_bps":8000000,"eta_seconds":null}"#
        )
    );
}

#[test]
fn daemon_writes_listening_and_stopped() {
    let (mut json, out, _) = json();
    json.begin(&Beginning::Serve(Serving {
        address: "127.0.0.1:7440".parse().unwrap(),
        fingerprint: Fingerprint([0; 32]),
        served: Served::Root("/srv".into()),
        example: String::new(),
        limits: ServerLimits { connections: 160, unauthenticated: 512, open_files: 20_000 },
        warnings: Vec::new(),
        metrics: None,
        invite: None,
    }));
    json.end(&Ending::Stopped);
    let fingerprint = format!("sha256:{}", "0".repeat(64));
    assert_eq!(
        out.lines(),
        [
            format!(
                "{{\"event\":\"listening\",\"address\":\"127.0.0.1:7440\",\"port\":7440,\
                 \"fingerprint\":\"{fingerprint}\",\"root\":\"/srv\",\"shares\":null,\"max_connections\":160,\
                 \"max_unauthenticated\":512,\"max_open_files\":20000,\"metrics\":null,\"invite\":null,\
                 \"schema\":1,\"version\":\"0.1.0\"}}"
            ),
            r#"{"event":"stopped"}"#.to_owned(),
        ]
    );
}

#[test]
fn event_name_is_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
    let text = std::fs::read_to_string(path).unwrap();
    for name in [
        "start",
        "connected",
        "destination",
        "progress",
        "file",
        "file_failed",
        "deploying",
        "warning",
        "tuning",
        "buffer_limit",
        "probe_result",
        "source_done",
        "round",
        "summary",
        "error",
        "listening",
        "client_connected",
        "client_done",
        "stopped",
    ] {
        assert!(text.contains(&format!("`{name}`")), "{name} is missing in docs/cli.md");
    }
}
