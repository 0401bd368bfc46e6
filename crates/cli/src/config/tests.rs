//! Tests of the configuration file without the program.

use super::file::{self, Content};
use super::*;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn parse(text: &str, file: &str) -> Result<Content, String> {
    file::parse(text, Path::new(file), &flags::command(), Some(Path::new("/home/me")))
}

/// Returns the arguments of a command line with the defaults of a text.
fn merged(text: &str, line: &str, environment: &Environment) -> Result<Vec<String>, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let environment = Environment { config: Some(file.path().into()), ..environment.clone() };
    let typed = ["bankfull"].into_iter().chain(line.split(' ')).map(OsString::from).collect();
    let (arguments, _) = applied(typed, &environment)?;
    assert!(flags::parse(arguments.clone()).is_ok(), "{arguments:?}");
    Ok(arguments.into_iter().skip(2).map(|word| word.into_string().unwrap()).collect())
}

fn plain(text: &str, line: &str) -> Vec<String> {
    merged(text, line, &Environment::default()).unwrap()
}

#[test]
fn values_become_arguments_in_their_order() {
    let text = "[cp]\nstreams = 8\nmax_rate = \"80mbit\"\ndelete = true\nchecksum = false\n\
                timeout = 2.5\nverbose = 2";
    assert_eq!(
        plain(text, "cp a host:b"),
        [
            "--streams=8",
            "--max-rate=80mbit",
            "--delete",
            "--timeout=2.5",
            "--verbose",
            "--verbose",
            "a",
            "host:b"
        ]
    );
    assert_eq!(plain(text, "gather host:a b"), ["host:a", "b"]);
}

#[test]
fn command_line_overrides_the_file() {
    let text = "[cp]\nstreams = 8\nverbose = true\nreport = \"r.html\"\nno-times = true";
    let line = "cp --streams 2 -q -n -t a b";
    let all = ["--no-times", "--streams", "2", "-q", "-n", "-t", "a", "b"];
    assert_eq!(plain(text, line), all);
}

#[test]
fn filters_follow_those_of_the_command_line() {
    let text = "[cp]\ninclude = \"b\"\nexclude = [\"*.o\", \"-x\"]";
    let all = ["--exclude", "--", "--include=b", "--exclude=*.o", "--exclude=-x", "--", "a", "b"];
    assert_eq!(plain(text, "cp --exclude -- -- a b"), all);
}

#[test]
fn idle_default_is_left_out() {
    let text = "[cp]\nmax-rate = \"80mbit\"\naccept-new = true\ndeploy = true\n\
                max-memory = \"64MiB\"\nstreams = 3";
    assert_eq!(plain(text, "cp a b"), ["--max-rate=80mbit", "--streams=3", "a", "b"]);
    let daemon = ["--max-rate=80mbit", "--accept-new", "--streams=3", "a", "bankfull://h/b"];
    assert_eq!(plain(text, "cp a bankfull://h/b"), daemon);
    let ssh = ["--max-rate=80mbit", "--deploy", "--max-memory=64MiB", "--streams=3", "h:a", "b"];
    assert_eq!(plain(text, "cp h:a b"), ssh);
}

#[test]
fn default_without_effect_on_a_stream_is_left_out() {
    let text = "[cp]\ndelete = true\nmax-delete = 5\nbackup = true\nsuffix = \".old\"\n\
                relative = true\nsize-only = true\nmax-rate = \"80mbit\"";
    assert_eq!(plain(text, "cp h:a -"), ["--max-rate=80mbit", "h:a", "-"]);
    let input = ["--backup", "--suffix=.old", "--size-only", "--max-rate=80mbit", "-", "b"];
    assert_eq!(plain(text, "cp - b"), input);
    assert_eq!(plain(text, "cp a b").len(), 9);
}

#[test]
fn default_that_another_flag_needs_is_left_out_without_it() {
    let text = "[cp]\nmax-delete = 5\nsuffix = \".old\"\nfrom0 = true";
    assert_eq!(plain(text, "cp a b"), ["a", "b"]);
    assert_eq!(plain(text, "cp --del a b"), ["--max-delete=5", "--del", "a", "b"]);
    let list = ["--from0", "--files-from", "l", "a", "b"];
    assert_eq!(plain(text, "cp --files-from l a b"), list);
    assert_eq!(plain(&format!("{text}\nbackup = true"), "cp a b").len(), 4);
}

#[test]
fn default_that_a_flag_excludes_is_left_out() {
    let text = "[cp]\nbuffer = \"4MB\"\ncongestion = \"bbr\"\nio = \"mmap\"";
    let over_quic = ["--io=mmap", "--transport", "quic", "a", "bankfull://h/b"];
    assert_eq!(plain(text, "cp --transport quic a bankfull://h/b"), over_quic);
    let quic = "[cp]\ntransport = \"quic\"\nbuffer = \"4MB\"";
    assert_eq!(plain(quic, "cp a bankfull://h/b"), ["--transport=quic", "a", "bankfull://h/b"]);
    assert_eq!(plain(quic, "cp a h:b"), ["--buffer=4MB", "a", "h:b"]);
    let typed = ["--buffer=4MB", "--congestion", "bbr", "a", "bankfull://h/b"];
    assert_eq!(plain(quic, "cp --congestion bbr a bankfull://h/b"), typed);
    let tuned = ["--tune", "sobas", "a", "h:b"];
    assert_eq!(plain("[cp]\nbuffer = \"4MB\"", "cp --tune sobas a h:b"), tuned);
}

#[test]
fn negation_removes_the_default() {
    let text =
        "[cp]\ndelete = true\nmax-delete = 5\nacls = true\nno-encryption = true\nverbose = 2";
    let line = "cp --no-delete --no-A --encryption --no-v h:a b";
    let all = ["--no-delete", "--no-A", "--encryption", "--no-v", "h:a", "b"];
    assert_eq!(plain(text, line), all);
    let again = ["--max-delete=5", "--acls", "--no-encryption", "--verbose", "--verbose"];
    let again = [&again[..], &["--no-delete", "--delete", "h:a", "b"]].concat();
    assert_eq!(plain(text, "cp --no-delete --delete h:a b"), again);
}

#[test]
fn key_without_a_flag_has_a_way_out() {
    for (text, line) in [
        ("[remote.a]\nuser = 1", "unknown key user in [remote.a]: a remote has url"),
        ("[remote.a]\nurl = 1", "url in [remote.a] takes a string"),
        ("[cp]\nz = true", "unknown key z in [cp]: bankfull does not compress: leave it out"),
        ("[cp]\nbwlimit = 5", "unknown key bwlimit in [cp]: write --max-rate 80mbit; 10M of"),
        ("[cp]\nport = 22", "unknown key port in [cp]: write Port in ~/.ssh/config, which"),
        ("[cp]\nP = 22", "unknown key P in [cp]: write Port in ~/.ssh/config, which bankfull's"),
        ("[ls]\ni = \"k\"", "unknown key i in [ls]: write IdentityFile in ~/.ssh/config"),
        ("[serve]\nport = 22", "unknown key port in [serve]: use -P PORT for ssh"),
        (
            "[cp]\nweather = 1",
            "unknown key weather in [cp]: the keys are the long flags of bankfull cp --help",
        ),
        ("[backup]", "unknown table [backup]: write [cp], [gather], [ls], [probe], [serve], ["),
        ("[share.a]\nreadonly = 1", "unknown key readonly in [share.a]: did you mean read-only?"),
        ("[share.a]\nread_only = 1", "read_only in [share.a] takes true or false"),
        ("[share.\"a/b\"]\npath = 1", "the name of a share has letters"),
        (
            "[remote.a]\nurl = \"h\"\nuser = \"me\"",
            "unknown key user in [remote.a]: a remote has url, token-file, fingerprint",
        ),
    ] {
        let shown = parse(text, "/c").unwrap_err();
        assert!(shown.starts_with(&format!("/c: {line}")), "{shown}");
    }
}

#[test]
fn variable_overrides_the_file() {
    let environment = Environment {
        token: Some("t".into()),
        state_dir: Some("s".into()),
        ssh: Some("ssh".into()),
        ..Environment::default()
    };
    let text = "[cp]\ntoken-file = \"t\"\nstate-dir = \"s\"\nssh-command = \"x\"";
    let line = "cp h:a bankfull://h/b";
    assert_eq!(merged(text, line, &environment).unwrap(), ["h:a", "bankfull://h/b"]);
    assert_eq!(plain(text, line).len(), 5);
}

#[test]
fn file_of_the_user_overrides_that_of_the_system() {
    let mut all = parse("[cp]\nstreams = 2\ndelete = true", "/etc/c").unwrap();
    all.override_with(parse("[cp]\ndelete = false\nfsync = \"file\"", "/home/c").unwrap());
    let arguments: Vec<String> = all.defaults["cp"].iter().flat_map(|e| e.arguments()).collect();
    assert_eq!(arguments, ["--streams=2", "--fsync=file"]);
}

#[test]
fn home_is_expanded_in_paths() {
    let text = "[cp]\ntoken-file = \"~/t\"\nexclude = [\"~/x\"]";
    let all = parse(text, "/c").unwrap();
    let arguments: Vec<String> = all.defaults["cp"].iter().flat_map(|e| e.arguments()).collect();
    assert_eq!(arguments, ["--token-file=/home/me/t", "--exclude=~/x"]);
}

#[test]
fn unknown_name_has_the_nearest_one() {
    for (text, line) in [
        ("[cp]\nstrems = 2", "/c: unknown key strems in [cp]: did you mean streams?"),
        (
            "[serve]\nreadonly = true",
            "/c: unknown key readonly in [serve]: did you mean read-only?",
        ),
        ("[server]", "/c: unknown table [server]: did you mean [serve]?"),
        (
            "[remote.a]\nurl = \"h\"\ntoken = \"t\"",
            "/c: unknown key token in [remote.a]: did you mean token-file?",
        ),
        ("delete = true", "/c: delete is outside a table: write it below [cp]"),
        ("[cp]\nstreams = true", "/c: streams in [cp] takes a string or a number"),
        ("[cp]\ndelete = 1", "/c: delete in [cp] takes true or false"),
        (
            "[remote.a]",
            "/c: [remote.a] has no url: write url = \"bankfull://HOST/PATH\" or \"HOST:PATH\"",
        ),
    ] {
        assert_eq!(parse(text, "/c").unwrap_err(), line);
    }
    for key in ["help", "version", "SRC"] {
        assert!(parse(&format!("[cp]\n{key} = true"), "/c").unwrap_err().contains("unknown key"));
    }
    assert!(parse("[cp]\n\nx = = 1", "/c").unwrap_err().starts_with("/c, line 3: "));
}

#[test]
fn bad_value_names_the_file_and_the_key() {
    let error = merged("[cp]\nstreams = 99", "cp a b", &Environment::default()).unwrap_err();
    assert!(error.contains(": streams in [cp]: invalid value '99' for '--streams"), "{error}");
    let error = merged("[cp]\nquiet = true\njson = true", "cp a b", &Environment::default());
    assert!(error.unwrap_err().starts_with("[cp] of "));
}

#[test]
fn writable_file_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let set = |mode| std::fs::set_permissions(file.path(), PermissionsExt::from_mode(mode));
    for mode in [0o620, 0o602, 0o666] {
        set(mode).unwrap();
        let error = file::read(file.path()).unwrap_err();
        assert!(error.ends_with(&format!("run chmod go-w {}", file.path().display())), "{error}");
    }
    set(0o644).unwrap();
    assert_eq!(file::read(file.path()), Ok(Some(String::new())));
    assert_eq!(file::read(Path::new("/nonexistent/c")), Ok(None));
    assert!(file::read(Path::new("/")).is_err());
}

#[test]
fn paths_follow_the_variables() {
    let at = |config: Option<&str>, base: Option<&str>| {
        let environment = Environment {
            config: config.map(PathBuf::from),
            config_home: base.map(PathBuf::from),
            home: Some("/home/me".into()),
            ..Environment::default()
        };
        paths(&environment, Reader::Command)
    };
    let system = PathBuf::from(SYSTEM_FILE);
    let own = PathBuf::from("/home/me/.config/bankfull/config.toml");
    assert_eq!(at(None, None), [system.clone(), own.clone()]);
    assert_eq!(at(None, Some("relative")), [system.clone(), own]);
    assert_eq!(at(None, Some("/x")), [system, PathBuf::from("/x/bankfull/config.toml")]);
    assert_eq!(at(Some("/c"), Some("/x")), [PathBuf::from("/c")]);
    assert!(at(Some(""), None).is_empty());
}
