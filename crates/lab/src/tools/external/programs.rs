//! Adapters for programs: server, client and source of the metrics.

use crate::base::error::{LabError, Result};
use crate::model::contender::Contender;
use crate::model::job::Job;
use crate::model::metrics::{Metrics, decision_name};
use crate::model::settings::Settings;
use crate::tools::external::ssh;
use crate::tools::fields::Field;
use crate::tools::shell::{program, quoted, quoted_flags, quoted_path};
use crate::tools::tool::{
    Initiator, MetricsSource, Program, Requirement, ServerScope, Tool, ToolKind,
};
use crate::topology::hosts::Hosts;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// Port of shared servers; the first port of per-sender servers. (chosen: no result
/// depends on it)
const PORT: u16 = 7700;

/// Unix account without rights.
const ANONYMOUS_ACCOUNT: &str = concat!("no", "body");

/// First data port of nuttcp: one for each stream. (chosen: above the server ports)
const NUTTCP_DATA_PORT: u16 = 20_000;

/// Time that a probe runs longer than its data counts. (chosen: handshakes take 4 RTTs, trains 2)
const START_TIME: Duration = Duration::from_secs(1);
const START_RTTS: u32 = 8;

/// Interval of pings. (chosen: 20 per second, enough for a mean in a short run)
const PING_INTERVAL_SECONDS: f64 = 0.05;

/// Fields of TCP tools, without and with parallel streams.
const TCP_FIELDS: &[Field] = &[Field::Flags, Field::Congestion];
const STREAM_FIELDS: &[Field] = &[Field::Streams, Field::Flags, Field::Congestion];

pub(crate) static BANKFULL: Tool = Tool {
    name: "bankfull",
    about: "bankfull cp to bankfull serve, encrypted",
    needs: &[Requirement { name: "bankfull", remedy: "cargo build --release -p bankfull-cli" }],
    version: &["bankfull", "--version"],
    supports: STREAM_FIELDS,
    unsupported: |_, _| None,
    kind: ToolKind::Program(Program {
        prepare: no_preparation,
        initiator: Initiator::Sender,
        server_scope: ServerScope::Shared,
        server: |job| {
            let state = quoted_path(&job.dir.join("daemon"));
            let (target, bankfull) = (quoted_path(&job.target()), program("bankfull"));
            Some(format!("exec {bankfull} serve {target} --listen :{PORT} --state-dir {state}"))
        },
        client: |job| {
            let streams = job.contender.streams.map(|n| format!(" --streams {n}"));
            let words = if job.keeps_output { "--json" } else { "-q" };
            format!(
                "exec {} cp {words} --accept-new --state-dir {}{}{} {} {}",
                program("bankfull"),
                quoted_path(&job.dir.join(format!("client{}", job.sender))),
                streams.unwrap_or_default(),
                quoted_flags(job),
                quoted_path(job.source),
                quoted(&format!("bankfull://{}:{PORT}/{}/", job.receiver, job.sender)),
            )
        },
        metrics: MetricsSource::Files,
    }),
};

pub(crate) static PROBE: Tool = Tool {
    name: "probe",
    about: "bankfull probe: filler for a time, tuned and encrypted as a copy",
    needs: BANKFULL.needs,
    version: BANKFULL.version,
    supports: STREAM_FIELDS,
    unsupported: |_, _| None,
    kind: ToolKind::Program(Program {
        prepare: no_preparation,
        initiator: Initiator::Sender,
        server_scope: ServerScope::Shared,
        server: |job| {
            let state = quoted_path(&job.dir.join("daemon"));
            let (root, bankfull) = (quoted_path(&job.target()), program("bankfull"));
            Some(format!(
                "exec {bankfull} serve {root} --listen :{PORT} --state-dir {state} \
                 --allow-no-encryption"
            ))
        },
        client: |job| {
            let streams = job.contender.streams.map(|n| format!(" --streams {n}"));
            format!(
                "exec {} probe --json -v --accept-new --state-dir {} --time {}{}{} {}",
                program("bankfull"),
                quoted_path(&job.dir.join(format!("client{}", job.sender))),
                // The time counts from the first data, which follows handshakes and trains.
                (job.duration + START_TIME + job.path.rtt() * START_RTTS).as_secs_f64(),
                streams.unwrap_or_default(),
                quoted_flags(job),
                quoted(&format!("bankfull://{}:{PORT}", job.receiver)),
            )
        },
        metrics: MetricsSource::Output(parse_probe),
    }),
};

pub(crate) static GATHER: Tool = Tool {
    name: "gather",
    about: "bankfull gather at the receiver, from a bankfull serve at each sender",
    needs: BANKFULL.needs,
    version: BANKFULL.version,
    supports: TCP_FIELDS,
    unsupported: |_, _| None,
    kind: ToolKind::Program(Program {
        prepare: no_preparation,
        initiator: Initiator::Receiver,
        server_scope: ServerScope::PerSender,
        server: |job| {
            let state = quoted_path(&job.dir.join(format!("daemon{}", job.sender)));
            let root = quoted_path(job.source.parent().unwrap_or(job.source));
            let bankfull = program("bankfull");
            Some(format!(
                "exec {bankfull} serve {root} --listen :{PORT} --state-dir {state} \
                 --allow-no-encryption"
            ))
        },
        client: gather_client,
        metrics: MetricsSource::Files,
    }),
};

pub(crate) static IPERF3: Tool = Tool {
    name: "iperf3",
    about: "TCP from memory to memory",
    needs: &[Requirement { name: "iperf3", remedy: "apt-get install iperf3" }],
    version: &["iperf3", "--version"],
    supports: STREAM_FIELDS,
    unsupported: require_whole_seconds,
    kind: ToolKind::Program(Program {
        prepare: no_preparation,
        initiator: Initiator::Sender,
        server_scope: ServerScope::PerSender,
        server: |job| Some(format!("exec {} -s -p {}", program("iperf3"), own_port(job))),
        client: |job| {
            let (seconds, streams, port) = (job.seconds(), job.streams(), own_port(job));
            let (iperf3, to, flags) = (program("iperf3"), &job.receiver, quoted_flags(job));
            format!("exec {iperf3} -c {to} -p {port} -J -t {seconds} -P {streams}{flags}")
        },
        metrics: MetricsSource::Output(parse_iperf3),
    }),
};

pub(crate) static NUTTCP: Tool = Tool {
    name: "nuttcp",
    about: "TCP from memory to memory",
    needs: &[Requirement { name: "nuttcp", remedy: "apt-get install nuttcp" }],
    version: &["nuttcp", "-V"],
    supports: STREAM_FIELDS,
    unsupported: require_whole_seconds,
    kind: ToolKind::Program(Program {
        prepare: no_preparation,
        initiator: Initiator::Sender,
        server_scope: ServerScope::PerSender,
        server: |job| Some(format!("exec {} -S --nofork -P{}", program("nuttcp"), own_port(job))),
        client: |job| {
            let (seconds, streams, port) = (job.seconds(), job.streams(), own_port(job));
            let data = NUTTCP_DATA_PORT + (job.sender * streams) as u16;
            let (nuttcp, to, flags) = (program("nuttcp"), &job.receiver, quoted_flags(job));
            format!("exec {nuttcp} -fparse -P{port} -p{data} -T{seconds} -N{streams}{flags} {to}")
        },
        metrics: MetricsSource::Output(parse_nuttcp),
    }),
};

pub(crate) static RSYNC: Tool = Tool {
    name: "rsync",
    about: "rsync to its own daemon, whole files, unencrypted",
    needs: &[Requirement { name: "rsync", remedy: "apt-get install rsync" }],
    version: &["rsync", "--version"],
    supports: TCP_FIELDS,
    unsupported: |_, _| None,
    kind: ToolKind::Program(Program {
        prepare: prepare_rsync,
        initiator: Initiator::Sender,
        server_scope: ServerScope::Shared,
        server: |job| {
            let config = quoted_path(&job.dir.join("rsyncd.conf"));
            let rsync = program("rsync");
            Some(format!("exec {rsync} --daemon --no-detach --port={PORT} --config={config}"))
        },
        client: |job| {
            let (to, source) = (&job.receiver, quoted_path(job.source));
            let place = format!("rsync://{to}:{PORT}/target/{}/", job.sender);
            format!("exec {} -a -W{} {source} {place}", program("rsync"), quoted_flags(job))
        },
        metrics: MetricsSource::Files,
    }),
};

pub(crate) static SCP: Tool = Tool {
    name: "scp",
    about: "scp of OpenSSH",
    needs: &[
        ssh::NEEDS[0],
        ssh::NEEDS[1],
        Requirement { name: "scp", remedy: "apt-get install openssh-client" },
    ],
    version: &["ssh", "-V"],
    supports: TCP_FIELDS,
    unsupported: |_, _| None,
    kind: ToolKind::Program(Program {
        prepare: ssh::prepare,
        initiator: Initiator::Sender,
        server_scope: ServerScope::Shared,
        server: ssh::server,
        client: |job| {
            let (config, source) = (ssh::client_config(job), quoted_path(job.source));
            let place = quoted(&format!("{}:{}/", job.receiver, job.sender_target().display()));
            let (scp, ssh, flags) = (program("scp"), program("ssh"), quoted_flags(job));
            format!("exec {scp} -S {ssh} -q -r -p -F {config}{flags} {source} {place}")
        },
        metrics: MetricsSource::Files,
    }),
};

pub(crate) static GRIDFTP: Tool = Tool {
    name: "gridftp",
    about: "globus-url-copy to a GridFTP server, unencrypted",
    needs: &[
        Requirement { name: "globus-url-copy", remedy: "apt-get install globus-gass-copy-progs" },
        Requirement {
            name: "globus-gridftp-server",
            remedy: "apt-get install globus-gridftp-server-progs",
        },
    ],
    // globus-url-copy exits with an error after printing its version.
    version: &["globus-gridftp-server", "--version"],
    supports: STREAM_FIELDS,
    unsupported: |_, _| None,
    kind: ToolKind::Program(Program {
        prepare: prepare_gridftp,
        initiator: Initiator::Sender,
        server_scope: ServerScope::Shared,
        server: |job| {
            let to = &job.receiver;
            let server = format!(
                "GLOBUS_HOSTNAME={to} exec {} -aa -anonymous-user {ANONYMOUS_ACCOUNT} -p {PORT} \
                 -control-interface {to} -data-interface {to} -home-dir / -disable-usage-stats",
                program("globus-gridftp-server")
            );
            Some(with_hosts_file(job, &server))
        },
        client: gridftp_client,
        metrics: MetricsSource::Files,
    }),
};

pub(crate) static RCLONE: Tool = Tool {
    name: "rclone",
    about: "rclone copy over SFTP",
    needs: &[
        ssh::NEEDS[0],
        ssh::NEEDS[1],
        Requirement { name: "rclone", remedy: "apt-get install rclone" },
    ],
    version: &["rclone", "version"],
    supports: TCP_FIELDS,
    unsupported: |_, _| None,
    kind: ToolKind::Program(Program {
        prepare: ssh::prepare,
        initiator: Initiator::Sender,
        server_scope: ServerScope::Shared,
        server: ssh::server,
        client: |job| {
            format!(
                "RCLONE_CONFIG=/dev/null exec {} copy -q --sftp-disable-hashcheck \
                 --sftp-host {} --sftp-port {} --sftp-user root --sftp-key-file {}{} {} {}",
                program("rclone"),
                job.receiver,
                ssh::PORT,
                quoted_path(&job.dir.join("user")),
                quoted_flags(job),
                quoted_path(job.source),
                quoted(&format!(":sftp:{}", job.sender_target().display())),
            )
        },
        metrics: MetricsSource::Files,
    }),
};

pub(crate) static QCP: Tool = Tool {
    name: "qcp",
    about: "qcp: QUIC, started over ssh",
    needs: &[
        ssh::NEEDS[0],
        ssh::NEEDS[1],
        Requirement { name: "qcp", remedy: "cargo install qcp" },
    ],
    version: &["qcp", "--version"],
    supports: &[Field::Flags],
    unsupported: |_, _| None,
    kind: ToolKind::Program(Program {
        prepare: ssh::prepare,
        initiator: Initiator::Sender,
        server_scope: ServerScope::Shared,
        server: ssh::server,
        client: |job| {
            let tree = if job.is_tree() { " -r" } else { "" };
            format!(
                "exec {} -q --ssh {}{tree}{} {} {}",
                program("qcp"),
                ssh::client_program(job),
                quoted_flags(job),
                quoted_path(job.source),
                quoted(&format!("{}:{}/", job.receiver, job.sender_target().display())),
            )
        },
        metrics: MetricsSource::Files,
    }),
};

pub(crate) static PING: Tool = Tool {
    name: "ping",
    about: "ICMP RTTs",
    needs: &[Requirement { name: "ping", remedy: "apt-get install iputils-ping" }],
    version: &["ping", "-V"],
    supports: &[Field::Flags],
    unsupported: |_, _| None,
    kind: ToolKind::Program(Program {
        prepare: no_preparation,
        initiator: Initiator::Sender,
        server_scope: ServerScope::Shared,
        server: |_| None,
        client: |job| {
            let count = (job.duration.as_secs_f64() / PING_INTERVAL_SECONDS).ceil().max(1.0);
            let (ping, to, flags) = (program("ping"), &job.receiver, quoted_flags(job));
            format!("exec {ping} -q -i {PING_INTERVAL_SECONDS} -c {count}{flags} {to}")
        },
        metrics: MetricsSource::Output(parse_ping),
    }),
};

/// One client gathers from all senders, and then moves each sender's files to its target.
fn gather_client(job: &Job<'_>) -> String {
    if job.sender > 0 {
        return "exec true".to_owned();
    }
    let name = job.source.file_name().unwrap_or_default().to_string_lossy();
    let from = |sender| format!("bankfull://{}:{PORT}/{name}", Hosts::address(sender));
    let sources: Vec<String> = (0..job.senders).map(|sender| quoted(&from(sender))).collect();
    let words = if job.keeps_output { "--json" } else { "-q" };
    let (state, gathered) = (job.dir.join("client"), job.dir.join("gathered"));
    let mut line = format!(
        "{} gather {words} --accept-new --state-dir {}{} {} {}",
        program("bankfull"),
        quoted_path(&state),
        quoted_flags(job),
        sources.join(" "),
        quoted_path(&gathered),
    );
    for sender in 0..job.senders {
        let from = gathered.join(format!("{}_{PORT}", Hosts::address(sender)));
        let to = job.target().join(sender.to_string());
        line += &format!(" && mv {}/* {}/", quoted_path(&from), quoted_path(&to));
    }
    line
}

/// Port of a sender's own server.
fn own_port(job: &Job<'_>) -> u16 {
    PORT + job.sender as u16
}

fn require_whole_seconds(settings: &Settings, _: &Contender) -> Option<String> {
    let is_whole = settings.run.duration.subsec_nanos() == 0;
    (!is_whole).then(|| "takes whole seconds only: change run.duration".to_owned())
}

fn no_preparation(_: &Job<'_>) -> Result<()> {
    Ok(())
}

/// Writes a hosts file: Globus looks up names of its host and addresses.
fn prepare_gridftp(job: &Job<'_>) -> Result<()> {
    let mut names = "127.0.0.1 localhost\n".to_owned();
    for host in 0..=job.senders + 1 {
        names += &format!("{} host{host}\n", Hosts::address(host));
    }
    fs::write(job.dir.join("hosts"), names)
        .map_err(|e| LabError::io("cannot write the hosts file", e))?;
    open_target(job)
}

/// Wraps a command with that hosts file and a listed host name.
fn with_hosts_file(job: &Job<'_>, line: &str) -> String {
    let hosts = quoted_path(&job.dir.join("hosts"));
    let inner = format!("mount --bind {hosts} /etc/hosts; hostname localhost; {line}");
    format!("exec unshare --uts --mount sh -c {}", quoted(&inner))
}

/// Opens a target, and the path to it, for a server without root privileges.
///
/// Opens only the run's directory and the lab's working directory around it, both created under
/// random names. They contain random data, and keys valid for this run's servers only, readable by
/// root alone. Only the target itself is writable by others, while the run lasts.
fn open_target(job: &Job<'_>) -> Result<()> {
    let open = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    let (place, target) = (job.sender_target(), job.target());
    let way = [job.dir.parent(), Some(job.dir), Some(&target)];
    way.into_iter()
        .flatten()
        .try_for_each(|path| open(path, 0o755))
        .and_then(|()| open(&place, 0o777))
        .map_err(|e| LabError::io(format!("cannot open {}", place.display()), e))
}

fn prepare_rsync(job: &Job<'_>) -> Result<()> {
    fs::write(job.dir.join("rsyncd.conf"), rsync_config(&job.target()))
        .map_err(|e| LabError::io("cannot prepare rsync", e))
}

/// Values extend to the end of the line, spaces included, without quoting. (rsyncd.conf(5))
fn rsync_config(target: &Path) -> String {
    format!(
        "uid = root\ngid = root\nuse chroot = no\nlog file = /dev/null\npid file =\n\
         [target]\npath = {}\nread only = no\n",
        target.display()
    )
}

/// Fastest options for small files: pipelining, several connections at a time.
fn gridftp_client(job: &Job<'_>) -> String {
    let (to, streams) = (&job.receiver, job.streams());
    let tree = if job.is_tree() { "-r -pp -cc 4 -fast -cd " } else { "" };
    // A trailing slash marks a directory.
    let slash = if job.is_tree() { "/" } else { "" };
    let name = job.source.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let source = quoted(&format!("file://{}{slash}", job.source.display()));
    let place = job.sender_target().join(name);
    let target = quoted(&format!("ftp://{to}:{PORT}{}{slash}", place.display()));
    let flags = quoted_flags(job);
    let here = Hosts::address(job.sender);
    let copy = program("globus-url-copy");
    let line = format!("exec {copy} -nodcau {tree}-p {streams}{flags} {source} {target}");
    with_hosts_file(job, &format!("GLOBUS_HOSTNAME={here} {line}"))
}

/// Parses the result of `bankfull probe --json`, and counts its decisions.
fn parse_probe(out: &str) -> Option<Metrics> {
    let events = out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let events: Vec<Value> = events.collect();
    let result = events.last()?;
    let goodput_bps = Some(result["rate_bps"].as_f64()?);
    let mut metrics = Metrics { goodput_bps, ..Metrics::default() };
    metrics.seconds = result["seconds"].as_f64();
    metrics.retransmits = result["retransmits"].as_u64();
    for event in events.iter().filter(|event| event["event"] == "tuning") {
        let text = |key: &str| event[key].as_str().unwrap_or_default();
        let state = Some(text("state")).filter(|state| !state.is_empty()).unwrap_or("streams");
        *metrics.decisions.entry(decision_name(state, text("reason"))).or_default() += 1;
    }
    Some(metrics)
}

fn parse_iperf3(out: &str) -> Option<Metrics> {
    let output: Value = serde_json::from_str(out).ok()?;
    let end = &output["end"]["sum_received"];
    Some(Metrics {
        goodput_bps: Some(end["bits_per_second"].as_f64()?),
        seconds: end["seconds"].as_f64(),
        ..Metrics::default()
    })
}

fn parse_nuttcp(out: &str) -> Option<Metrics> {
    let value = |name: &str| {
        let word = out.split_whitespace().find_map(|word| word.strip_prefix(name))?;
        word.strip_prefix('=')?.parse::<f64>().ok()
    };
    Some(Metrics {
        goodput_bps: Some(value("rate_Mbps")? * 1e6),
        seconds: value("real_seconds"),
        ..Metrics::default()
    })
}

/// Parses `rtt min/avg/max/mdev = 20.1/20.2/20.5/0.1 ms` and `… 0% packet loss …`.
fn parse_ping(out: &str) -> Option<Metrics> {
    let (_, metrics) = out.split_once("min/avg/max")?.1.split_once("= ")?;
    let mut metrics = metrics.split(['/', ' ']).map_while(|text| text.parse::<f64>().ok());
    let rtt = [metrics.next()? / 1e3, metrics.next()? / 1e3, metrics.next()? / 1e3];
    let lost = out.split("% packet loss").next()?.rsplit(' ').next()?.parse::<f64>().ok()?;
    Some(Metrics { rtt_seconds: Some(rtt), lost_share: Some(lost / 100.0), ..Metrics::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rsync_config_keeps_spaces_unquoted() {
        let config = rsync_config(Path::new("/tmp/a b/target"));
        assert!(config.lines().any(|line| line == "path = /tmp/a b/target"), "{config}");
    }

    #[test]
    fn program_output_is_parsed() {
        let out = r#"{"end":{"sum_received":{"seconds":8.01,"bits_per_second":9.2e8}}}"#;
        let found = parse_iperf3(out).unwrap();
        assert_eq!((found.goodput_bps, found.seconds), (Some(9.2e8), Some(8.01)));
        assert_eq!(parse_iperf3("{\"error\":\"unable to connect\"}"), None);
        let out = "{\"event\":\"tuning\",\"state\":\"\"}\n\
                   {\"event\":\"tuning\",\"state\":\"disabled\",\"reason\":\"a queue of 5.5 ms stands\"}\n\
                   {\"event\":\"probe_result\",\"rate_bps\":95000000}\n";
        let found = parse_probe(out).unwrap();
        assert_eq!(found.goodput_bps, Some(95e6));
        let names: Vec<&String> = found.decisions.keys().collect();
        assert_eq!(names, ["disabled (a queue stands)", "streams"]);
        assert_eq!(parse_probe("{\"event\":\"error\"}\n"), None);
        let out = "megabytes=95.8 real_seconds=1.00 rate_Mbps=803.2 tx_cpu=5 rx_cpu=9\n";
        let found = parse_nuttcp(out).unwrap();
        assert_eq!((found.goodput_bps, found.seconds), (Some(803.2e6), Some(1.0)));
        let out = "20 packets transmitted, 19 received, 5% packet loss, time 958ms\n\
                   rtt min/avg/max/mdev = 20.107/20.160/20.477/0.085 ms\n";
        let found = parse_ping(out).unwrap();
        assert_eq!(found.rtt_seconds, Some([0.020107, 0.02016, 0.020477]));
        assert_eq!(found.lost_share, Some(0.05));
        assert_eq!(parse_ping("ping: connect: Network is unreachable"), None);
    }
}
