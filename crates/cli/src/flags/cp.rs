//! The flags of `bankfull cp`.

use super::values::{
    DirectWhen, FsyncWhen, IoHow, SshCommand, StreamCount, TransportHow, TuneHow, block, buffer,
    fingerprint, memory, page, port, rate, seconds, ssh_command, stream_count,
};
use super::{Example, ShowFlags, after_help};
use bankfull::{Bytes, Fingerprint, Rate};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const EXAMPLES: &[Example] = &[
    ("bankfull cp ./data host:/incoming/", "Copy a tree over your own ssh, and continue it later."),
    ("bankfull cp -P 2222 -J gate me@host:run1 host:run2 .", "Fetch two trees past a gateway."),
    (
        "bankfull cp --token-file token big.iso bankfull://store.example/images/",
        "Send a file to a daemon.",
    ),
    ("bankfull cp --dry-run --checksum /src/ host:/dst", "See what differs, by content."),
];

/// Copies files and trees, and skips what the destination has already.
///
/// A place is a path on this host, `[user@]host:path` over your own ssh, or
/// `bankfull://host[:port]/path` at a daemon. A local name with a colon is written `./a:b`.
/// With several sources, DST is a directory. Directories are copied as a whole; modes, times and
/// symlinks are kept; every block is verified. Interrupted, the same command continues.
#[derive(Debug, Args)]
#[command(args_override_self = true, after_long_help = after_help(EXAMPLES))]
pub(crate) struct CpFlags {
    /// Files and directories to copy.
    #[arg(required = true, value_name = "SRC")]
    pub(crate) sources: Vec<OsString>,

    /// Where they go: a directory, or the new name of a single source.
    #[arg(value_name = "DST")]
    pub(crate) destination: OsString,

    /// Sets the number of data connections, 1 to 64; auto begins with 4 where a round trip takes up
    /// to 20 ms, 8 up to 40 ms, 16 above, or as many as an earlier copy took, and then has as many
    /// as the path is found to need.
    #[arg(long, value_name = "N", value_parser = stream_count, default_value = "auto")]
    pub(crate) streams: StreamCount,

    /// Sends data without encryption. It stays authenticated and verified, and a far side that
    /// does not allow it refuses. Default: encrypted.
    #[arg(long)]
    pub(crate) no_encryption: bool,

    /// Sets when received files are flushed to the disk.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = FsyncWhen::End)]
    pub(crate) fsync: FsyncWhen,

    /// Compares files by content. Default: by size and modification time.
    #[arg(short, long)]
    pub(crate) checksum: bool,

    /// Says what would be done and changes nothing. Default: off.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// Says whether the windows and the pacing of data connections follow the path while the copy
    /// runs.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = TuneHow::Auto)]
    pub(crate) tune: TuneHow,

    /// Sends no more data than this per second, over all data connections together, tuned or not:
    /// 100kbit at least, such as 100mbit or 1.5gbit. Default: as much as the path carries.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) max_rate: Option<Rate>,

    /// Holds the receive windows of all data connections together at this size for the whole copy,
    /// such as 500kB or 4MB, and leaves pacing to TCP. Default: they follow the path.
    #[arg(long, value_name = "SIZE", value_parser = buffer)]
    pub(crate) buffer: Option<Bytes>,

    /// Has the side that sends use this congestion control on its data connections, such as cubic
    /// or bbr. Default: that host's own.
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,

    /// Has the side that sends take bytes from files to connections by this engine. Default: what
    /// suits the file and the connection.
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t = IoHow::Auto)]
    pub(crate) io: IoHow,

    /// Cuts files that are sent anew into blocks of this size, which are verified and continued as
    /// a whole: a power of two, 1MiB to 16MiB. Default: by the file's size, the larger the more.
    #[arg(long, value_name = "SIZE", value_parser = block)]
    pub(crate) block_size: Option<Bytes>,

    /// Says whether both sides read and write files past their page caches: by themselves, files of
    /// 16MiB and more on disks that do not rotate, and to read those that are not in the cache,
    /// where the kernel tells all that (Linux 6.5; to write, 6.1).
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = DirectWhen::Auto)]
    pub(crate) direct: DirectWhen,

    /// Lets no more than this wait in memory on the side that receives until it is written, such as
    /// 256MiB, 1MiB at least; in copies to a daemon, which has a limit of its own, it is an error.
    /// How much is used follows the load. Default: a quarter of the memory that is free there, 1GiB
    /// at most.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) max_memory: Option<Bytes>,

    /// Gives up when nothing was heard from the far side for this long, in seconds; fractions are
    /// allowed.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) timeout: Duration,

    /// Writes how the copy went to this file, as one page for a browser: rate, round trip, windows
    /// and losses over time, and every decision with its reason. The name ends in .html. Default:
    /// no report.
    #[arg(long, value_name = "FILE.html", value_parser = OsStringValueParser::new().try_map(page))]
    pub(crate) report: Option<PathBuf>,

    /// What is shown.
    #[command(flatten)]
    pub(crate) show: ShowFlags,

    /// How a daemon is reached.
    #[command(flatten)]
    pub(crate) daemon: DaemonFlags,

    /// How ssh is called.
    #[command(flatten)]
    pub(crate) ssh: SshFlags,

    /// Flags that change nothing.
    #[command(flatten)]
    habit: HabitFlags,
}

impl CpFlags {
    /// One of the flags for copies with another host that were given, as it is typed.
    pub(crate) fn first_for_paths(&self) -> Option<&'static str> {
        first_given(&[
            (self.no_encryption, "--no-encryption"),
            (self.max_rate.is_some(), "--max-rate"),
            (self.buffer.is_some(), "--buffer"),
            (self.congestion.is_some(), "--congestion"),
            (self.io != IoHow::Auto, "--io"),
            (self.block_size.is_some(), "--block-size"),
            (self.direct != DirectWhen::Auto, "--direct"),
            (self.max_memory.is_some(), "--max-memory"),
            (self.tune != TuneHow::Auto, "--tune"),
            (self.daemon.state_dir.is_some(), "--state-dir"),
        ])
    }
}

/// How a daemon (`bankfull://`) is trusted and told who we are.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Daemon (bankfull://)")]
pub(crate) struct DaemonFlags {
    /// Takes the access token from this file, without its trailing newline. Default: the content of
    /// the environment variable BANKFULL_TOKEN, else none.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// Sets the fingerprint that the daemon must show: sha256: and 64 hexadecimal digits. Default:
    /// the one remembered of this daemon.
    #[arg(long, value_name = "sha256:HEX", value_parser = fingerprint)]
    pub(crate) fingerprint: Option<Fingerprint>,

    /// Trusts a daemon that was never met, remembers its fingerprint, and says so. Default: refuse
    /// it.
    #[arg(long)]
    pub(crate) accept_new: bool,

    /// Sets what carries control and data.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = TransportHow::Tcp)]
    pub(crate) transport: TransportHow,

    /// Sets the directory where fingerprints of daemons, and what copies to any host found paths to
    /// carry, are remembered. Default: the environment variable BANKFULL_STATE_DIR, else
    /// $XDG_STATE_HOME/bankfull, else ~/.local/state/bankfull.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

impl DaemonFlags {
    /// One of the flags that were given, as it is typed.
    pub(crate) fn first_given(&self) -> Option<&'static str> {
        first_given(&[
            (self.token_file.is_some(), "--token-file"),
            (self.fingerprint.is_some(), "--fingerprint"),
            (self.accept_new, "--accept-new"),
            (self.transport != TransportHow::Tcp, "--transport"),
        ])
    }
}

fn first_given(flags: &[(bool, &'static str)]) -> Option<&'static str> {
    flags.iter().find(|(given, _)| *given).map(|(_, name)| *name)
}

/// How the user's own ssh is called, and what it starts.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Ssh (host:path)")]
pub(crate) struct SshFlags {
    /// Sets the port of the ssh server. Default: what ssh's configuration says, else 22.
    #[arg(short = 'P', value_name = "PORT", value_parser = port)]
    pub(crate) port: Option<u16>,

    /// Passes an identity file to ssh; may be repeated. Default: ssh's own.
    #[arg(short = 'i', value_name = "FILE", action = ArgAction::Append)]
    pub(crate) identities: Vec<PathBuf>,

    /// Passes a configuration file to ssh. Default: ssh's own.
    #[arg(short = 'F', value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Passes jump hosts to ssh, separated by commas. Default: what ssh's configuration says.
    #[arg(short = 'J', value_name = "HOSTS")]
    pub(crate) jump: Option<String>,

    /// Passes an option to ssh as its configuration spells it; may be repeated. Default: none.
    #[arg(short = 'o', value_name = "OPTION", action = ArgAction::Append)]
    pub(crate) options: Vec<String>,

    /// Sets the program to call in place of ssh, with its first arguments; quotes and backslashes
    /// work as in a shell, nothing is expanded. Default: the environment variable BANKFULL_SSH,
    /// else ssh.
    #[arg(long, value_name = "COMMAND", value_parser = OsStringValueParser::new().try_map(ssh_command))]
    pub(crate) ssh_command: Option<SshCommand>,

    /// Sets the path of bankfull on the far side. Default: the one on the PATH there.
    #[arg(long, value_name = "PATH")]
    pub(crate) remote_bankfull: Option<String>,

    /// Puts this very program on the far side when there is none. Default: off.
    #[arg(long, conflicts_with = "remote_bankfull")]
    pub(crate) deploy: bool,
}

impl SshFlags {
    /// One of the flags that were given, as it is typed.
    pub(crate) fn first_given(&self) -> Option<&'static str> {
        first_given(&[
            (self.port.is_some(), "-P"),
            (!self.identities.is_empty(), "-i"),
            (self.config.is_some(), "-F"),
            (self.jump.is_some(), "-J"),
            (!self.options.is_empty(), "-o"),
            (self.ssh_command.is_some(), "--ssh-command"),
            (self.remote_bankfull.is_some(), "--remote-bankfull"),
            (self.deploy, "--deploy"),
        ])
    }
}

/// Flags that fingers type out of habit. What they ask for is always on.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Always on (accepted for the sake of habit)")]
struct HabitFlags {
    /// Copies directories as a whole: always on.
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,

    /// Keeps modes, times and symlinks, and copies directories: always on.
    #[arg(short, long)]
    archive: bool,

    /// Keeps modes and times: always on.
    #[arg(short = 'p')]
    preserve: bool,
}

#[cfg(test)]
mod tests {
    use super::super::Command;
    use super::super::tests::parse;
    use super::*;
    use bankfull::DEFAULT_TIMEOUT;
    use std::os::unix::ffi::OsStringExt;

    fn cp(flags: &[&str]) -> Result<Box<CpFlags>, String> {
        let all: Vec<&str> = ["cp"].into_iter().chain(flags.iter().copied()).collect();
        match parse(&[&all[..], &["a", "b"]].concat()) {
            Ok(Command::Cp(flags)) => Ok(flags),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn nothing_but_operands_gives_the_defaults_of_the_library() {
        let flags = cp(&[]).unwrap();
        assert_eq!(flags.streams, StreamCount::Auto);
        assert_eq!(flags.timeout, DEFAULT_TIMEOUT);
        assert_eq!(flags.fsync, FsyncWhen::End);
        assert!(!flags.no_encryption && !flags.checksum && !flags.dry_run);
    }

    #[test]
    fn the_last_operand_is_the_destination() {
        let Ok(Command::Cp(flags)) = parse(&["cp", "a", "b", "host:c"]) else { panic!() };
        assert_eq!(flags.sources, ["a", "b"]);
        assert_eq!(flags.destination, "host:c");
        assert!(parse(&["cp", "a"]).is_err());
        assert!(parse(&["cp"]).is_err());
    }

    #[test]
    fn operands_need_not_be_text() {
        use clap::Parser;
        let odd = OsString::from_vec(b"a\xff".to_vec());
        let line = ["bankfull".into(), "cp".into(), odd.clone(), "b".into()];
        let Command::Cp(flags) = super::super::Cli::try_parse_from(line).unwrap().command else {
            panic!()
        };
        assert_eq!(flags.sources, [odd]);
    }

    #[test]
    fn a_name_that_starts_with_a_dash_stands_behind_two() {
        let Ok(Command::Cp(flags)) = parse(&["cp", "-n", "--", "-x", "b"]) else { panic!() };
        assert_eq!(flags.sources, ["-x"]);
    }

    #[test]
    fn streams_are_1_to_64() {
        assert_eq!(cp(&["--streams", "64"]).unwrap().streams, StreamCount::Fixed(64));
        assert_eq!(cp(&["--streams=1"]).unwrap().streams, StreamCount::Fixed(1));
        assert!(cp(&["--streams", "0"]).is_err());
        assert!(cp(&["--streams", "65"]).is_err());
    }

    #[test]
    fn no_encryption_parses() {
        assert!(cp(&["--no-encryption"]).unwrap().no_encryption);
    }

    #[test]
    fn fsync_is_none_file_or_end() {
        for (text, when) in
            [("none", FsyncWhen::None), ("file", FsyncWhen::File), ("end", FsyncWhen::End)]
        {
            assert_eq!(cp(&["--fsync", text]).unwrap().fsync, when);
        }
        assert!(cp(&["--fsync", "always"]).is_err());
    }

    #[test]
    fn checksum_and_dry_run_have_rsyncs_letters() {
        assert!(cp(&["-c"]).unwrap().checksum && cp(&["--checksum"]).unwrap().checksum);
        assert!(cp(&["-n"]).unwrap().dry_run && cp(&["--dry-run"]).unwrap().dry_run);
    }

    #[test]
    fn timeout_takes_fractions_and_refuses_zero() {
        assert_eq!(cp(&["--timeout", "2.5"]).unwrap().timeout, Duration::from_millis(2500));
        assert!(cp(&["--timeout", "0"]).unwrap_err().contains("longer than 0 seconds"));
    }

    #[test]
    fn a_report_is_a_page_and_never_a_source_whose_name_stands_there_by_mistake() {
        let page = cp(&["--report", "r.html"]).unwrap().report;
        assert_eq!(page, Some("r.html".into()));
        let error = cp(&["--report", "data.bin"]).unwrap_err().to_string();
        assert!(error.contains("the name of a report must end in .html"), "{error}");
        assert!(cp(&["--report", "html"]).is_err());
    }

    #[test]
    fn tune_is_auto_off_or_sobas() {
        let how = |text| cp(&["--tune", text]).map(|flags| flags.tune);
        assert_eq!(cp(&[]).unwrap().tune, TuneHow::Auto);
        let chosen = ["auto", "off", "sobas"].map(|text| how(text).unwrap());
        assert_eq!(chosen, [TuneHow::Auto, TuneHow::Off, TuneHow::Sobas]);
        assert!(how("on").is_err());
    }

    #[test]
    fn a_rate_is_in_bits_and_says_so() {
        let most = |text| cp(&["--max-rate", text]).map(|flags| flags.max_rate);
        assert_eq!(most("100mbit").unwrap(), Some(Rate::from_bits_per_sec(1e8)));
        assert!(most("100").unwrap_err().contains("write 100mbit, 1.5gbit"));
        assert!(most("12MB/s").is_err() && most("0bit").is_err());
    }

    #[test]
    fn a_buffer_is_in_bytes() {
        assert_eq!(cp(&["--buffer", "4MB"]).unwrap().buffer, Some(Bytes(4_000_000)));
        assert!(cp(&["--buffer", "1000"]).unwrap_err().contains("two segments"));
    }

    #[test]
    fn an_engine_blocks_and_direct_are_named() {
        let flags = cp(&["--io", "zerobuffer", "--block-size", "4MiB", "--direct", "on"]).unwrap();
        assert_eq!((flags.io, flags.direct), (IoHow::Zerobuffer, DirectWhen::On));
        assert_eq!(flags.block_size, Some(Bytes::mib(4)));
        assert!(cp(&["--io", "stream"]).unwrap_err().contains("possible values: auto, buffered"));
        assert!(cp(&["--block-size", "3MiB"]).unwrap_err().contains("a power of two"));
        assert!(cp(&["--block-size", "32MiB"]).is_err());
    }

    #[test]
    fn a_repeated_flag_counts_as_its_last() {
        let flags = cp(&["--streams", "2", "-r", "-r", "--streams", "3"]).unwrap();
        assert_eq!(flags.streams, StreamCount::Fixed(3));
    }

    #[test]
    fn daemon_flags_parse() {
        let pin = format!("sha256:{}", "ab".repeat(32));
        let flags = cp(&["--token-file", "t", "--fingerprint", &pin, "--state-dir", "s"]).unwrap();
        assert_eq!(flags.daemon.token_file, Some("t".into()));
        assert_eq!(flags.daemon.fingerprint, Some(Fingerprint([0xab; 32])));
        assert_eq!(flags.daemon.state_dir, Some("s".into()));
        assert!(!flags.daemon.accept_new);
        assert!(cp(&["--accept-new"]).unwrap().daemon.accept_new);
        assert!(cp(&["--fingerprint", "sha256:ab"]).unwrap_err().contains("64 hexadecimal"));
    }

    #[test]
    fn a_token_is_never_taken_from_the_command_line() {
        assert!(cp(&["--token", "secret"]).is_err());
    }

    #[test]
    fn ssh_flags_have_scps_letters() {
        let line = "-P 2222 -i k1 -i k2 -F conf -J a,b -o X=1 -o Y=2";
        let flags = cp(&line.split(' ').collect::<Vec<_>>()).unwrap().ssh;
        assert_eq!(flags.port, Some(2222));
        assert_eq!(flags.identities, [PathBuf::from("k1"), PathBuf::from("k2")]);
        assert_eq!(flags.config, Some("conf".into()));
        assert_eq!(flags.jump.as_deref(), Some("a,b"));
        assert_eq!(flags.options, ["X=1", "Y=2"]);
        assert!(cp(&["-P", "0"]).is_err());
    }

    #[test]
    fn the_far_side_can_be_chosen() {
        let flags = cp(&["--ssh-command", "my 'ssh x'", "--remote-bankfull", "/opt/b"]);
        let flags = flags.unwrap().ssh;
        assert_eq!(flags.ssh_command, Some(SshCommand(vec!["my".into(), "ssh x".into()])));
        assert_eq!(flags.remote_bankfull.as_deref(), Some("/opt/b"));
        assert!(!flags.deploy && cp(&["--deploy"]).unwrap().ssh.deploy);
        // A path says that it is there, the other that it need not be.
        assert!(cp(&["--remote-bankfull", "/opt/b", "--deploy"]).is_err());
        assert!(cp(&["--ssh-command", "'"]).unwrap_err().contains("not closed"));
    }

    #[test]
    fn habits_are_accepted() {
        for habit in ["-r", "-R", "--recursive", "-a", "--archive", "-p", "-arp"] {
            assert!(cp(&[habit]).is_ok(), "{habit}");
        }
    }
}
