//! Rate limits that a hostile peer changes, or that an older one does not follow.

use super::super::harness::{
    Done, FakeServer, Peer, Scratch, cp, open_push_of, run, welcome, write_file,
};
use super::check_alive;
use super::clients::Scene;
use bankfull_proto::wire::control::{
    Cause, Direction, Message, Open, Opened, PathBytes, RateLimit, Source,
};

fn limit(bytes_per_sec: u64) -> Message {
    Message::RateLimit(RateLimit { bytes_per_sec: Some(bytes_per_sec) })
}

/// Connects a client that may change the rate limit, or not.
fn client(scene: &Scene, direction: Direction, rate_changes: bool) -> Peer {
    let mut peer = Peer::welcomed(scene.daemon.port);
    let source = Source { name: Vec::new(), is_dir: true, contents: true, open_ended: None };
    let Message::Open(open) = open_push_of(vec![source], false) else { unreachable!() };
    let rate_changes = rate_changes.then_some(true);
    peer.send(&Message::Open(Open { direction, rate_changes, ..open }));
    let Some(Message::Opened(opened)) = peer.receive() else { panic!("it was refused") };
    assert_eq!(opened.rate_changes, rate_changes);
    peer
}

/// Copies to or from a daemon that does not follow changes, then receives `message`.
fn copy(flags: &[&str], is_push: bool, message: Option<Message>) -> Done {
    let server = FakeServer::greeted(move |peer, _| {
        peer.send(&welcome(1));
        if matches!(peer.receive(), Some(Message::Open(_))) {
            let destinations = vec![PathBytes(b"f".to_vec())];
            let source =
                Source { name: b"f".to_vec(), is_dir: false, contents: false, open_ended: None };
            peer.send(&Message::Opened(match is_push {
                true => Opened { destinations, ..Opened::default() },
                false => Opened { sources: vec![source], ..Opened::default() },
            }));
            message.iter().for_each(|message| peer.send(message));
            while peer.receive().is_some() {}
        }
    });
    let here = Scratch::new();
    write_file(&here.join("f"), b"x");
    let mut command = cp();
    command.args(["--accept-new", "--state-dir"]).arg(here.join("state")).args(flags);
    let (url, file) = (server.url(), here.join("f").display().to_string());
    let places = if is_push { [file, url] } else { [format!("{url}f"), file + ".new"] };
    run(command.args(places))
}

#[test]
fn rate_limits_of_a_client_are_checked() {
    let mut scene = Scene::new(&[]);
    for direction in [Direction::Push, Direction::Pull] {
        let mut unasked = client(&scene, direction, false);
        unasked.send(&limit(1_000_000));
        unasked.expect_refusal(Cause::Protocol, "a rate limit that was not agreed on");
        for too_low in [0, 12_499] {
            let mut peer = client(&scene, direction, true);
            (0..1_000).for_each(|n| peer.send(&limit(12_500 + n)));
            peer.send(&limit(too_low));
            peer.expect_refusal(Cause::Usage, "is too low");
        }
    }
    check_alive(&mut scene.daemon);
}

#[test]
fn server_cannot_change_the_limit_of_its_client() {
    for is_push in [true, false] {
        let done = copy(&["--max-rate", "1mbit"], is_push, Some(limit(u64::MAX)));
        done.expect(12).says(&["a rate limit that was not agreed on"]);
    }
}

#[test]
fn server_that_does_not_follow_a_schedule_is_refused() {
    for is_push in [true, false] {
        let done = copy(&["--schedule", "*=max"], is_push, None);
        done.expect(2).says(&["does not support --schedule: install a newer bankfull there"]);
    }
}
