//! Thread shortage, through the limits of a user or a container.

use super::check_alive;
use crate::harness::{Daemon, Rng, Scratch, fill, run, unprivileged_within};
use std::fs;

#[test]
fn thread_shortage_is_reported_or_tolerated() {
    let here = Scratch::new();
    fill(&here.dir("from").join("file"), 4 << 20, &mut Rng::new(1));
    let mut daemon = Daemon::start(here.path(), &[]);
    for threads in [1, 6, 18] {
        for (is_local, transport) in [(true, "tcp"), (false, "tcp"), (false, "quic")] {
            let mut command = unprivileged_within(&here, &here.dir("out"), threads);
            command.args(["cp", "--json"]);
            if is_local {
                command.arg(here.join("from/file"));
            } else {
                command.args(["--transport", transport, "--retry-for", "0"]);
                command.args(["--accept-new", "--state-dir"]).arg(here.join("out/state"));
                command.arg(daemon.url("from/file"));
            }
            let done = run(command.arg(here.join("out/file")));
            assert!(!done.err.contains("panicked"), "{threads}: {}", done.err);
            match done.code {
                // Other programs of the same user may have used all threads.
                Some(11) => done.says(&["thread", "ulimit -u"]),
                code => assert_eq!(code, Some(0), "{threads}: {done:?}"),
            }
            if threads == 1 {
                assert_eq!(done.code, Some(11), "{done:?}");
            }
        }
        fs::remove_dir_all(here.join("out")).unwrap();
    }
    check_alive(&mut daemon);
}
