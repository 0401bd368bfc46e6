//! The flags of `bankfull serve`.

use super::values::{Listen, connections, listen, memory, rate, seconds};
use super::{Example, ShowFlags, after_help};
use bankfull::{Bytes, Rate, ServeOptions};
use clap::{ArgAction, Args};
use std::path::PathBuf;
use std::time::Duration;

pub(super) const EXAMPLES: &[Example] = &[
    ("bankfull serve /srv/data --token-file token", "Serve on port 7440 of every address."),
    ("bankfull serve /srv/data --listen 127.0.0.1:0", "Serve this host only, on a free port."),
    ("bankfull serve /srv/data --read-only --json", "Hand out files, and write events as JSON."),
];

/// Serves a directory to clients until it is told to stop.
///
/// Clients reach ROOT as `bankfull://host[:port]/` and nothing outside it. At the start, the
/// address, the fingerprint and the command for clients are shown. SIGINT or SIGTERM lets running
/// sessions end, a second one ends them, a third one ends the program at once.
#[derive(Debug, Args)]
#[command(args_override_self = true, after_long_help = after_help(EXAMPLES))]
pub(crate) struct ServeFlags {
    /// Directory to serve.
    #[arg(value_name = "ROOT")]
    pub(crate) root: PathBuf,

    /// Sets the address and port to listen on: ADDR:PORT, HOST:PORT, :PORT for every address, or
    /// an address alone for port 7440. Port 0 takes a free one.
    #[arg(long, value_name = "ADDR:PORT", default_value = "[::]:7440", value_parser = listen)]
    pub(crate) listen: Listen,

    /// Asks clients for the token in this file, without its trailing newline. Default: the content
    /// of the environment variable BANKFULL_TOKEN, else no token is asked for.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// Refuses uploads. Default: uploads are allowed.
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Lets clients choose data connections without encryption. Default: they are refused.
    #[arg(long)]
    pub(crate) allow_no_encryption: bool,

    /// Sets the directory where the certificate is kept. Default: the environment variable
    /// BANKFULL_STATE_DIR, else $XDG_STATE_HOME/bankfull, else ~/.local/state/bankfull.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,

    /// Sets how many connections there may be at a time, 2 to 65535; a client has one for control
    /// and one for each of its streams.
    #[arg(
        long,
        value_name = "N",
        default_value_t = ServeOptions::DEFAULT_MAX_CONNECTIONS,
        value_parser = connections
    )]
    pub(crate) max_connections: usize,

    /// Gives up a client when nothing was heard from it for this long, in seconds; fractions are
    /// allowed.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) timeout: Duration,

    /// Says what the link carries by which clients send, such as 1gbit or 10gbit: while several
    /// do, they take turns, and their windows fit that link together. Default: what the interface
    /// tells, else what turns out.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) link_rate: Option<Rate>,

    /// Lets no more than this wait in memory until it is written, of all clients together, such as
    /// 256MiB, 1MiB at least. How much is used follows the load. Default: a quarter of the memory
    /// that is free, 1GiB at most.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) max_memory: Option<Bytes>,

    /// What is shown.
    #[command(flatten)]
    pub(crate) show: LogFlags,
}

/// What a daemon shows: the names of [`ShowFlags`], and what they mean for a log.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct LogFlags {
    /// Writes one JSON object per line to standard output, in place of text; the manual (`bankfull
    /// man serve`) says more. Default: text.
    #[arg(long)]
    json: bool,

    /// Says more: every copied file; twice, unchanged files too. Default: where it listens, each
    /// client that comes and goes, and failed files.
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,

    /// Says nothing but where it listens, and errors. Default: off.
    #[arg(short, long, conflicts_with_all = ["json", "verbose"])]
    quiet: bool,
}

impl From<&LogFlags> for ShowFlags {
    fn from(flags: &LogFlags) -> Self {
        Self { json: flags.json, verbose: flags.verbose, quiet: flags.quiet }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Command;
    use super::super::tests::parse;
    use super::*;
    use bankfull::{DEFAULT_PORT, DEFAULT_TIMEOUT};

    fn serve(flags: &[&str]) -> Result<ServeFlags, String> {
        match parse(&[&["serve", "/srv"], flags].concat()) {
            Ok(Command::Serve(flags)) => Ok(flags),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn nothing_but_the_root_gives_the_defaults_of_the_library() {
        let flags = serve(&[]).unwrap();
        assert_eq!(flags.root, PathBuf::from("/srv"));
        assert_eq!(flags.listen, Listen { host: "::".to_owned(), port: DEFAULT_PORT });
        assert_eq!(flags.max_connections, ServeOptions::DEFAULT_MAX_CONNECTIONS);
        assert_eq!(flags.timeout, DEFAULT_TIMEOUT);
        assert!(!flags.read_only && !flags.allow_no_encryption && flags.token_file.is_none());
        assert!(parse(&["serve"]).is_err());
    }

    #[test]
    fn listen_takes_an_address() {
        let flags = serve(&["--listen", ":99"]).unwrap();
        assert_eq!(flags.listen, Listen { host: String::new(), port: 99 });
        assert!(serve(&["--listen", "host:port"]).is_err());
    }

    #[test]
    fn switches_parse() {
        let flags = serve(&["--read-only", "--allow-no-encryption"]).unwrap();
        assert!(flags.read_only && flags.allow_no_encryption);
        let flags = serve(&["--token-file", "t", "--state-dir", "s"]).unwrap();
        assert_eq!((flags.token_file, flags.state_dir), (Some("t".into()), Some("s".into())));
    }

    #[test]
    fn limits_are_checked() {
        assert_eq!(serve(&["--max-connections", "2"]).unwrap().max_connections, 2);
        assert!(serve(&["--max-connections", "1"]).is_err());
        assert_eq!(serve(&["--timeout", "0.5"]).unwrap().timeout, Duration::from_millis(500));
        assert!(serve(&["--timeout", "0"]).is_err());
        let gigabit = Some(Rate::from_bits_per_sec(1e9));
        assert_eq!(serve(&["--link-rate", "1gbit"]).unwrap().link_rate, gigabit);
        assert!(serve(&["--link-rate", "1kbit"]).is_err());
    }

    #[test]
    fn what_is_shown_can_be_chosen() {
        assert!(serve(&["--json"]).unwrap().show.json);
        assert_eq!(serve(&["-v"]).unwrap().show.verbose, 1);
        assert!(serve(&["--quiet"]).unwrap().show.quiet);
    }
}
