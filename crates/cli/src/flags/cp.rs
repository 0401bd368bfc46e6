//! Flags of `bankfull cp`.

use super::delete::DeleteFlags;
use super::earlier::EarlierFlags;
use super::filters::FilterFlags;
use super::habits::HabitFlags;
use super::metadata::MetadataFlags;
use super::notify::Notify;
use super::operands::Operands;
use super::selection::{ComparisonFlags, SelectionFlags};
use super::values::{
    DirectWhen, FsyncWhen, IoHow, SshCommand, StreamCount, TransportHow, TuneHow, block, buffer,
    fingerprint, memory, page, port, ports, rate, schedule, seconds, seconds_or_none, ssh_command,
    stream_count,
};
use super::{Example, ShowFlags, after_help};
use bankfull::{Bytes, Fingerprint, Rate, Schedule};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const EXAMPLES: &[Example] = &[
    (
        "bankfull cp ./data host:/incoming/",
        "Copy a tree over your own ssh; run it again to resume.",
    ),
    (
        "bankfull cp -P 2222 -J gate me@host:run1 host:run2 .",
        "Fetch two trees through a jump host.",
    ),
    (
        "bankfull cp --token-file token --accept-new big.iso bankfull://store.example/images/",
        "Send a file to a daemon, and remember its fingerprint.",
    ),
    ("bankfull cp host:backup.tar - | tar x", "Unpack an archive as it arrives."),
    ("bankfull cp <(pg_dump db) host:db.sql", "Send what a program writes."),
    ("bankfull cp --dry-run --checksum /src/ host:/dst", "List the files whose content differs."),
];

/// Copy files and directory trees
///
/// An operand is a path on this host, `[user@]host:path` over your own ssh, or
/// `bankfull://host[:port]/path` at a daemon. Write a local name with a colon as `./a:b`. The
/// source `-` is standard input, and the destination `-` standard output, for a single file. With
/// several sources, DST is a directory.
/// Directories are copied with their contents; modes, times and symlinks are kept. Files that the
/// destination already has are skipped, and every block is verified. An interrupted copy continues
/// when the same command is run again. `--no-NAME` switches off what an earlier `--NAME` or the
/// configuration file switches on.
#[derive(Debug, Args)]
#[command(
    args_override_self = true,
    override_usage = "bankfull cp [OPTIONS] SRC... DST",
    after_long_help = after_help(EXAMPLES),
)]
pub(crate) struct CpFlags {
    /// Operands.
    #[command(flatten)]
    pub(crate) operands: Operands,

    /// Set the number of data streams (1 to 64, or auto)
    ///
    /// auto starts with 4 streams at an RTT of up to 20 ms, 8 up to 40 ms and 16 above, or with the
    /// number that an earlier copy over the path used, and then adapts the number to the path.
    #[arg(long, value_name = "N", value_parser = stream_count, default_value = "auto")]
    pub(crate) streams: StreamCount,

    /// Send data without encryption
    ///
    /// The data stays authenticated and verified. The copy fails if the peer does not allow it.
    /// Default: encrypted.
    #[arg(long)]
    pub(crate) no_encryption: bool,

    /// Choose when received files are flushed to the disk
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = FsyncWhen::End)]
    pub(crate) fsync: FsyncWhen,

    /// Compare files by content
    ///
    /// Default: by size and modification time.
    #[arg(short, long)]
    pub(crate) checksum: bool,

    /// Reuse the data of an interrupted run without hashing it again
    ///
    /// Default: each of its blocks is hashed again during the transfer, and sent again if the disk
    /// changed it. Within this host, nothing is hashed.
    #[arg(long)]
    pub(crate) trust_journal: bool,

    /// Show what would be copied, and change nothing
    ///
    /// Default: off.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// List each change at the destination, in rsync's format
    ///
    /// Standard output gets a line such as >f.st...... name for each entry that is changed, or
    /// would be with --dry-run. rsync(1) explains the columns. Default: off.
    #[arg(long)]
    pub(crate) itemize_changes: bool,

    /// Tune window, pacing and stream count while the copy runs
    #[arg(long, value_name = "HOW", value_enum, default_value_t = TuneHow::Auto)]
    pub(crate) tune: TuneHow,

    /// Limit the data rate, such as 100mbit or 10MB/s
    ///
    /// The limit applies to all data streams together, tuned or not, and to copies within this
    /// host; the minimum is 100kbit.
    /// Default: no limit.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) max_rate: Option<Rate>,

    /// Limit the data rate by the time of day, such as 08:00-18:00=50mbit,*=max
    ///
    /// Each range of local times has a rate, or max for none; * is the rest of the day. A running
    /// copy changes its limit within a second of the end of a range. With --max-rate, the lower of
    /// both limits applies. Default: no limit.
    #[arg(long, value_name = "RANGE=RATE,...", value_parser = schedule)]
    pub(crate) schedule: Option<Schedule>,

    /// Fix the receive windows at a total size, such as 500kB or 4MB
    ///
    /// The size holds for all data streams together during the whole copy, and pacing is left to
    /// TCP. Default: the windows follow the path.
    #[arg(long, value_name = "SIZE", value_parser = buffer)]
    pub(crate) buffer: Option<Bytes>,

    /// Set the congestion control of the sender, such as cubic or bbr
    ///
    /// Applies to the data streams. Default: the setting of the sending host, or, while the stream
    /// count is tuned, BBR if the host allows it and a trial shows that it helps.
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<String>,

    /// Choose how the sender moves data from files to streams
    ///
    /// Default: by file and connection.
    #[arg(long, value_name = "METHOD", value_enum, default_value_t = IoHow::Auto)]
    pub(crate) io: IoHow,

    /// Set the block size of newly sent files, 1MiB to 16MiB
    ///
    /// The size is a power of two. Each block is verified and resumed as a whole. Default: by file
    /// size; larger files have larger blocks.
    #[arg(long, value_name = "SIZE", value_parser = block)]
    pub(crate) block_size: Option<Bytes>,

    /// Choose whether files bypass the page cache
    ///
    /// The choice applies to reading and writing on both sides. auto bypasses the cache for files
    /// of 16MiB and more on disks that do not rotate, and reads only files that are not in the
    /// cache already. This needs a kernel that reports these facts: Linux 6.5 to read, 6.1 to
    /// write.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = DirectWhen::Auto)]
    pub(crate) direct: DirectWhen,

    /// Limit receive-buffer memory, such as 256MiB
    ///
    /// The buffers of the receiver hold data until it is written; their use follows the load. The
    /// minimum is 1MiB. In a copy to a daemon, which has a limit of its own, the flag is an error.
    /// Default: a quarter of the free memory of the receiver, at most 1GiB.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) max_memory: Option<Bytes>,

    /// Give up after this many seconds without a response
    ///
    /// Fractions are allowed.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) timeout: Duration,

    /// Reconnect a lost session for this many seconds
    ///
    /// The transfer then resumes. With 0, a lost session ends the command. The first connection is
    /// not retried.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds_or_none)]
    pub(crate) retry_for: Duration,

    /// Write an HTML report of the copy
    ///
    /// The page shows rate, RTT, windows and losses over time, and every decision with its reason.
    /// The file name must end in .html. Default: no report.
    #[arg(long, value_name = "FILE.html", value_parser = OsStringValueParser::new().try_map(page))]
    pub(crate) report: Option<PathBuf>,

    /// Write metrics of the copy to this file, for Prometheus
    ///
    /// The textfile collector of the node exporter reads files whose names end in .prom. The file
    /// has result, end, duration, bytes and files of the last copy, with its name as label.
    /// Default: no file.
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    pub(crate) metrics_file: Option<PathBuf>,

    /// Run this command, or post to this URL, when the copy has ended
    ///
    /// The command is run by sh, and has the result as JSON on its standard input, and
    /// BANKFULL_OUTCOME and BANKFULL_EXIT_CODE in its environment; a URL gets the JSON by POST. If
    /// that fails, a warning says so, and the exit code is that of the copy. Default: none.
    #[arg(long, value_name = "COMMAND|URL", conflicts_with = "dry_run")]
    pub(crate) notify: Option<Notify>,

    /// Filter flags.
    #[command(flatten)]
    pub(crate) filters: FilterFlags,

    /// Deletion flags.
    #[command(flatten)]
    pub(crate) delete: DeleteFlags,

    /// Flags for earlier versions.
    #[command(flatten)]
    pub(crate) earlier: EarlierFlags,

    /// Metadata flags.
    #[command(flatten)]
    pub(crate) metadata: MetadataFlags,
    /// Selection flags.
    #[command(flatten)]
    pub(crate) selection: SelectionFlags,

    /// Comparison flags.
    #[command(flatten)]
    pub(crate) comparison: ComparisonFlags,

    /// Flags of rsync without effect.
    #[command(flatten)]
    habits: HabitFlags,

    /// Output flags.
    #[command(flatten)]
    pub(crate) show: ShowFlags,

    /// Daemon flags.
    #[command(flatten)]
    pub(crate) daemon: DaemonFlags,

    /// Ssh flags.
    #[command(flatten)]
    pub(crate) ssh: SshFlags,
}

impl CpFlags {
    /// Returns one of the given flags that need a network path, as typed.
    pub(crate) fn first_for_paths(&self) -> Option<&'static str> {
        first_given(&[
            (self.no_encryption, "--no-encryption"),
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

/// Flags for daemons (`bankfull://`): trust and access.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Daemon (bankfull://)")]
pub(crate) struct DaemonFlags {
    /// Read the access token, or the private key of this client, from a file
    ///
    /// A trailing newline is removed. A key is ed25519 in PEM (PKCS#8). Default: the environment
    /// variable BANKFULL_TOKEN, else no token.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// Require this fingerprint of the daemon
    ///
    /// Write sha256: followed by 64 hexadecimal digits. Default: the remembered fingerprint of the
    /// daemon.
    #[arg(long, value_name = "sha256:HEX", value_parser = fingerprint)]
    pub(crate) fingerprint: Option<Fingerprint>,

    /// Trust an unknown daemon and remember its fingerprint
    ///
    /// A message names the fingerprint. Default: refuse the daemon.
    #[arg(long)]
    pub(crate) accept_new: bool,

    /// Choose the transport of control and data
    #[arg(long, value_name = "HOW", value_enum, default_value_t = TransportHow::Tcp)]
    pub(crate) transport: TransportHow,

    /// Set the directory of remembered state
    ///
    /// The state is the fingerprints of daemons, and measurements of the paths to all hosts.
    /// Default: the environment variable BANKFULL_STATE_DIR, else $XDG_STATE_HOME/bankfull, else
    /// ~/.local/state/bankfull.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

impl DaemonFlags {
    /// Returns one of the given flags, as typed.
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

/// Flags for ssh: the client to run, and the program it starts.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Ssh (host:path)")]
pub(crate) struct SshFlags {
    /// Set the port of the ssh server
    ///
    /// Default: the configuration of ssh, else 22.
    #[arg(short = 'P', value_name = "PORT", value_parser = port)]
    pub(crate) port: Option<u16>,

    /// Pass an identity file to ssh; may be repeated
    ///
    /// Default: the setting of ssh.
    #[arg(short = 'i', value_name = "FILE", action = ArgAction::Append)]
    pub(crate) identities: Vec<PathBuf>,

    /// Pass a configuration file to ssh
    ///
    /// Default: the setting of ssh.
    #[arg(short = 'F', value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Pass jump hosts to ssh, separated by commas
    ///
    /// Default: the configuration of ssh.
    #[arg(short = 'J', value_name = "HOSTS")]
    pub(crate) jump: Option<String>,

    /// Pass an option to ssh in configuration syntax; may be repeated
    ///
    /// Default: none.
    #[arg(short = 'o', value_name = "OPTION", action = ArgAction::Append)]
    pub(crate) options: Vec<String>,

    /// Run this command instead of ssh
    ///
    /// The command may include first arguments. Quotes and backslashes work as in a shell; nothing
    /// is expanded. Default: the environment variable BANKFULL_SSH, else ssh.
    #[arg(long, value_name = "COMMAND", value_parser = OsStringValueParser::new().try_map(ssh_command))]
    pub(crate) ssh_command: Option<SshCommand>,

    /// Set the path of bankfull on the remote host
    ///
    /// Default: the program on the PATH there, else the one that --deploy put there.
    #[arg(long, value_name = "PATH")]
    pub(crate) remote_bankfull: Option<String>,

    /// Receive data streams at one of these ports of the remote host, such as 7450-7459
    ///
    /// For a firewall there: each running copy needs one, for TCP and UDP. Default: any free port.
    #[arg(long, value_name = "A-B", value_parser = ports)]
    pub(crate) data_ports: Option<RangeInclusive<u16>>,

    /// Copy this program to the remote host if it has none
    ///
    /// Default: off.
    #[arg(long, conflicts_with = "remote_bankfull")]
    pub(crate) deploy: bool,
}

impl SshFlags {
    /// Returns one of the given flags, as typed.
    pub(crate) fn first_given(&self) -> Option<&'static str> {
        first_given(&[
            (self.port.is_some(), "-P"),
            (!self.identities.is_empty(), "-i"),
            (self.config.is_some(), "-F"),
            (self.jump.is_some(), "-J"),
            (!self.options.is_empty(), "-o"),
            (self.ssh_command.is_some(), "--ssh-command"),
            (self.remote_bankfull.is_some(), "--remote-bankfull"),
            (self.data_ports.is_some(), "--data-ports"),
            (self.deploy, "--deploy"),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::super::Command;
    use super::super::tests::parse;
    use super::*;
    use bankfull::DEFAULT_TIMEOUT;
    use std::ffi::OsString;
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
    fn defaults_are_those_of_the_library() {
        let flags = cp(&[]).unwrap();
        assert_eq!(flags.streams, StreamCount::Auto);
        assert_eq!(flags.timeout, DEFAULT_TIMEOUT);
        assert_eq!(flags.fsync, FsyncWhen::End);
        assert!(!flags.no_encryption && !flags.checksum && !flags.dry_run);
    }

    #[test]
    fn last_operand_is_the_destination() {
        let Ok(Command::Cp(flags)) = parse(&["cp", "a", "b", "host:c"]) else { panic!() };
        assert_eq!(flags.operands.sources, ["a", "b"]);
        assert_eq!(flags.operands.destination, "host:c");
        assert!(parse(&["cp", "a"]).is_err());
        assert!(parse(&["cp"]).is_err());
    }

    #[test]
    fn operands_may_be_invalid_utf8() {
        use clap::Parser;
        let odd = OsString::from_vec(b"a\xff".to_vec());
        let line = ["bankfull".into(), "cp".into(), odd.clone(), "b".into()];
        let Command::Cp(flags) = super::super::Cli::try_parse_from(line).unwrap().command else {
            panic!()
        };
        assert_eq!(flags.operands.sources, [odd]);
    }

    #[test]
    fn name_with_leading_dash_follows_double_dash() {
        let Ok(Command::Cp(flags)) = parse(&["cp", "-n", "--", "-x", "b"]) else { panic!() };
        assert_eq!(flags.operands.sources, ["-x"]);
        let Ok(Command::Cp(flags)) = parse(&["cp", "--", "-a", "b", "-c"]) else { panic!() };
        assert_eq!(flags.operands.sources, ["-a", "b"]);
        assert_eq!(flags.operands.destination, "-c");
    }

    #[test]
    fn flags_may_stand_between_operands() {
        for line in ["a -v b c", "-v a b -n c", "a b -vn c", "a b c -v"] {
            let all: Vec<&str> = ["cp"].into_iter().chain(line.split(' ')).collect();
            let Ok(Command::Cp(flags)) = parse(&all) else { panic!("{line}") };
            assert_eq!(flags.operands.sources, ["a", "b"], "{line}");
            assert_eq!(flags.operands.destination, "c", "{line}");
            assert_eq!(flags.show.verbose, 1, "{line}");
        }
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
    fn checksum_and_dry_run_have_the_letters_of_rsync() {
        assert!(cp(&["-c"]).unwrap().checksum && cp(&["--checksum"]).unwrap().checksum);
        assert!(cp(&["-n"]).unwrap().dry_run && cp(&["--dry-run"]).unwrap().dry_run);
    }

    #[test]
    fn timeout_accepts_fractions_but_not_zero() {
        assert_eq!(cp(&["--timeout", "2.5"]).unwrap().timeout, Duration::from_millis(2500));
        assert!(cp(&["--timeout", "0"]).unwrap_err().contains("longer than 0 seconds"));
    }

    #[test]
    fn report_name_must_end_in_html() {
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
    fn max_rate_is_in_bits() {
        let most = |text| cp(&["--max-rate", text]).map(|flags| flags.max_rate);
        assert_eq!(most("100mbit").unwrap(), Some(Rate::from_bits_per_sec(1e8)));
        assert!(most("100").unwrap_err().contains("write 100mbit, 1.5gbit"));
        assert!(most("12MB").is_err() && most("0bit").is_err());
    }

    #[test]
    fn buffer_is_in_bytes() {
        assert_eq!(cp(&["--buffer", "4MB"]).unwrap().buffer, Some(Bytes(4_000_000)));
        assert!(cp(&["--buffer", "1000"]).unwrap_err().contains("two segments"));
    }

    #[test]
    fn io_block_size_and_direct_parse() {
        let flags = cp(&["--io", "zerobuffer", "--block-size", "4MiB", "--direct", "on"]).unwrap();
        assert_eq!((flags.io, flags.direct), (IoHow::Zerobuffer, DirectWhen::On));
        assert_eq!(flags.block_size, Some(Bytes::mib(4)));
        assert!(cp(&["--io", "stream"]).unwrap_err().contains("possible values: auto, buffered"));
        assert!(cp(&["--block-size", "3MiB"]).unwrap_err().contains("a power of two"));
        assert!(cp(&["--block-size", "32MiB"]).is_err());
    }

    #[test]
    fn repeated_flag_keeps_the_last_value() {
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
    fn token_flag_does_not_exist() {
        assert!(cp(&["--token", "secret"]).is_err());
    }

    #[test]
    fn ssh_flags_have_the_letters_of_scp() {
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
    fn remote_program_can_be_chosen() {
        let flags = cp(&["--ssh-command", "my 'ssh x'", "--remote-bankfull", "/opt/b"]);
        let flags = flags.unwrap().ssh;
        assert_eq!(flags.ssh_command, Some(SshCommand(vec!["my".into(), "ssh x".into()])));
        assert_eq!(flags.remote_bankfull.as_deref(), Some("/opt/b"));
        assert!(!flags.deploy && cp(&["--deploy"]).unwrap().ssh.deploy);
        // A path means the program exists; --deploy allows it to be missing.
        assert!(cp(&["--remote-bankfull", "/opt/b", "--deploy"]).is_err());
        assert!(cp(&["--ssh-command", "'"]).unwrap_err().contains("not closed"));
    }

    #[test]
    fn compatibility_flags_are_accepted() {
        for habit in ["-r", "-R", "--recursive", "-a", "--archive", "-p", "-arp"] {
            assert!(cp(&[habit]).is_ok(), "{habit}");
        }
    }
}
