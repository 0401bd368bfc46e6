//! Flags of `bankfull serve`.

use super::values::{
    Listen, connections, listen, memory, metrics_address, plain_name, rate, seconds,
};
use super::{Example, LogFlags, ShowFlags, after_help};
use bankfull::{Bytes, Rate, ServeOptions};
use clap::{ArgAction, Args};
use std::path::PathBuf;
use std::time::Duration;

pub(super) const EXAMPLES: &[Example] = &[
    ("bankfull serve /srv/data --invite laptop", "Serve, and print what `bankfull login` reads."),
    ("bankfull serve /srv/data --token-file token", "Serve on port 7440 of every address."),
    ("bankfull serve /srv/data --listen 127.0.0.1:0", "Serve this host only, on a free port."),
    ("bankfull serve", "Serve the shares of /etc/bankfull/serve.toml."),
    ("bankfull serve /srv/data --read-only --json", "Serve files read-only, with JSON output."),
];

/// Serve a directory to clients
///
/// Clients reach ROOT as `bankfull://host[:port]/`, and nothing outside it. At startup, the
/// address, the fingerprint and a command for clients are shown. The first SIGINT or SIGTERM lets
/// running sessions finish, a second one ends them, and a third one ends the program at once.
/// SIGHUP reads shares, tokens and the certificate again, unless standard input is a terminal.
#[derive(Debug, Args)]
#[command(args_override_self = true, after_long_help = after_help(EXAMPLES))]
pub(crate) struct ServeFlags {
    /// Directory to serve
    ///
    /// Default: the shares `[share.NAME]` of the configuration file /etc/bankfull/serve.toml, which
    /// clients reach as `bankfull://host/NAME/`.
    #[arg(value_name = "ROOT")]
    pub(crate) root: Option<PathBuf>,

    /// Set the address and port to listen on
    ///
    /// Write ADDR:PORT or HOST:PORT; :PORT or PORT alone listens on every address, and an address
    /// alone on port 7440. Port 0 chooses a free port.
    #[arg(long, value_name = "ADDR:PORT", default_value = "[::]:7440", value_parser = listen)]
    pub(crate) listen: Listen,

    /// Require clients to present the token in this file
    ///
    /// A trailing newline is removed. Default: the environment variable BANKFULL_TOKEN, else no
    /// token is required.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// Set the file of the tokens that `bankfull token` creates
    ///
    /// Changes apply within a second. Default: tokens.toml in the state directory. If it exists,
    /// clients need one of its tokens, or that of --token-file.
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,

    /// Create a token of this name, and print an invite for `bankfull login`
    ///
    /// The invite is the one line on standard output: address, fingerprint and token. Clients must
    /// be able to resolve this host's name. Default: none; see `bankfull token create --invite`.
    #[arg(long, value_name = "NAME", value_parser = plain_name)]
    pub(crate) invite: Option<String>,

    /// Refuse uploads
    ///
    /// Default: uploads are allowed.
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Let clients set owners, groups and set-id bits
    ///
    /// Owners need root. Default: files belong to the user of the daemon.
    #[arg(long)]
    pub(crate) allow_owner: bool,

    /// Let clients create devices
    ///
    /// They need root. Default: they are left out.
    #[arg(long)]
    pub(crate) allow_devices: bool,

    /// Let clients set extended attributes of the namespaces security and trusted
    ///
    /// They need root. Default: those of the namespace user alone.
    #[arg(long)]
    pub(crate) allow_privileged_xattrs: bool,

    /// Allow clients to use data streams without encryption
    ///
    /// Default: refuse them.
    #[arg(long)]
    pub(crate) allow_no_encryption: bool,

    /// Present the certificate in this file, in PEM
    ///
    /// Intermediate certificates may follow. SIGHUP reads it and its key again. Clients compare its
    /// fingerprint; they check no signature. Default: a certificate that is generated once.
    #[arg(long, value_name = "FILE", requires = "private_key")]
    pub(crate) certificate: Option<PathBuf>,

    /// Set the file of the private key of --certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) private_key: Option<PathBuf>,

    /// Set the directory of the generated certificate and the tokens
    ///
    /// Default: the environment variable BANKFULL_STATE_DIR, else $XDG_STATE_HOME/bankfull, else
    /// ~/.local/state/bankfull.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,

    /// Limit the number of connections, 2 to 65535
    ///
    /// A client has one connection for control and one for each data stream.
    #[arg(
        long,
        value_name = "N",
        default_value_t = ServeOptions::DEFAULT_MAX_CONNECTIONS,
        value_parser = connections
    )]
    pub(crate) max_connections: usize,

    /// Give up on a client after this many seconds without a response
    ///
    /// Fractions are allowed.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) timeout: Duration,

    /// End the running sessions this many seconds after SIGTERM
    ///
    /// Until then they may finish; a second signal ends them at once. Fractions are allowed.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) drain_timeout: Duration,

    /// Set the rate of the receiving link, such as 1gbit or 10gbit
    ///
    /// While several clients send, they get time slots, and their windows together fit that link.
    /// Default: the rate that the interface reports, else the measured rate.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) link_rate: Option<Rate>,

    /// Limit receive-buffer memory, such as 256MiB
    ///
    /// The buffers of all clients together hold data until it is written; their use follows the
    /// load. The minimum is 1MiB. Default: a quarter of the free memory, at most 1GiB.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) max_memory: Option<Bytes>,

    /// Append a JSON line for each session, and for refused clients, to this file
    ///
    /// Each line has time, client, name of the token, direction, paths, bytes, files and outcome. A
    /// file that was moved away is created again. If it cannot be written, sessions continue, with
    /// a warning. Default: none; the log has sessions, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) audit_log: Option<PathBuf>,

    /// Expose metrics to Prometheus over HTTP at this address
    ///
    /// Write ADDR:PORT, or :PORT for every address; port 0 chooses a free one. Pages: /metrics,
    /// /healthz and /readyz. They need no password. Default: no port is opened.
    #[arg(long, value_name = "ADDR:PORT", value_parser = metrics_address)]
    pub(crate) metrics: Option<Listen>,

    /// Output flags.
    #[command(flatten)]
    pub(crate) show: DaemonShowFlags,
}

/// Output flags of a daemon: the names of [`ShowFlags`], with the meaning they have for a log.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct DaemonShowFlags {
    /// Write one JSON object per line to standard output, instead of the log
    ///
    /// The manual page (`bankfull man serve`) describes them. The log is then written only with
    /// --log-file or BANKFULL_LOG. Default: the log, on standard error.
    #[arg(long)]
    json: bool,

    /// Log every copied file and tuning decision; twice (-vv), unchanged files too
    ///
    /// The log lines per client are then not limited. Default: sessions, the first failed files of
    /// each, and warnings.
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,

    /// Log only warnings and failures
    ///
    /// Default: off.
    #[arg(short, long, conflicts_with_all = ["json", "verbose"])]
    quiet: bool,

    /// Log flags.
    #[command(flatten)]
    log: LogFlags,
}

impl From<&DaemonShowFlags> for ShowFlags {
    fn from(flags: &DaemonShowFlags) -> Self {
        let DaemonShowFlags { json, verbose, quiet, log } = flags.clone();
        Self { json, verbose, quiet, log }
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
            Ok(Command::Serve(flags)) => Ok(*flags),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn defaults_are_those_of_the_library() {
        let flags = serve(&[]).unwrap();
        assert_eq!(flags.root, Some(PathBuf::from("/srv")));
        assert_eq!(flags.listen, Listen { host: "::".to_owned(), port: DEFAULT_PORT });
        assert_eq!(flags.max_connections, ServeOptions::DEFAULT_MAX_CONNECTIONS);
        assert_eq!(flags.timeout, DEFAULT_TIMEOUT);
        assert!(!flags.read_only && !flags.allow_no_encryption && flags.token_file.is_none());
        assert!(matches!(parse(&["serve"]), Ok(Command::Serve(flags)) if flags.root.is_none()));
    }

    #[test]
    fn listen_accepts_an_address() {
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
    fn output_flags_parse() {
        assert!(serve(&["--json"]).unwrap().show.json);
        assert_eq!(serve(&["-v"]).unwrap().show.verbose, 1);
        assert!(serve(&["--quiet"]).unwrap().show.quiet);
    }
}
