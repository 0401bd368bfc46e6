//! One adapter for each program: what serves, what runs, what is measured.

use super::{
    Begun, Clients, Field, Figures, Job, Measure, Need, Program, Tool, Way, program, quoted,
    quoted_path, ssh,
};
use crate::error::{LabError, Result};
use crate::hosts::Hosts;
use crate::scenario::{Contender, Settings};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Port of the servers that take any; where each sender has a server of its own, the first. (ours)
const PORT: u16 = 7700;

/// First port of nuttcp's data: each of its streams has one, behind those of the servers. (ours)
const NUTTCP_DATA_PORT: u16 = 20_000;

/// Distance of pings. (ours: 20 a second, so that a short run has enough for a mean)
const PING_SECONDS: f64 = 0.05;

/// What tools over TCP take, those without parallel streams and those with.
const FLAGS: &[Field] = &[Field::Flags, Field::Congestion];
const STREAMS: &[Field] = &[Field::Streams, Field::Flags, Field::Congestion];

pub(super) static BANKFULL: Tool = Tool {
    name: "bankfull",
    about: "bankfull cp to bankfull serve, encrypted",
    needs: &[Need { what: "bankfull", remedy: "cargo build --release -p bankfull-cli" }],
    version: &["bankfull", "--version"],
    takes: STREAMS,
    refuses: |_, _| None,
    way: Way::Program(Program {
        prepare: nothing,
        begun: Begun::AtSender,
        clients: Clients::Many,
        server: |job| {
            let state = quoted_path(&job.dir.join("daemon"));
            let (target, bankfull) = (quoted_path(&job.target()), program("bankfull"));
            Some(format!("exec {bankfull} serve {target} --listen :{PORT} --state-dir {state}"))
        },
        client: |job| {
            let streams = job.contender.streams.map(|n| format!(" --streams {n}"));
            let words = if job.is_heard { "--json" } else { "-q" };
            format!(
                "exec {} cp {words} --accept-new --state-dir {}{}{} {} {}",
                program("bankfull"),
                quoted_path(&job.dir.join(format!("client{}", job.sender))),
                streams.unwrap_or_default(),
                job.flags(),
                quoted_path(job.source),
                quoted(&format!("bankfull://{}:{PORT}/{}/", job.receiver, job.sender)),
            )
        },
        measure: Measure::Files,
    }),
};

pub(super) static GATHER: Tool = Tool {
    name: "gather",
    about: "bankfull gather at the receiver, from a bankfull serve at each sender",
    needs: BANKFULL.needs,
    version: BANKFULL.version,
    takes: FLAGS,
    refuses: |_, _| None,
    way: Way::Program(Program {
        prepare: nothing,
        begun: Begun::AtReceiver,
        clients: Clients::One,
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
        measure: Measure::Files,
    }),
};

pub(super) static IPERF3: Tool = Tool {
    name: "iperf3",
    about: "TCP from memory to memory",
    needs: &[Need { what: "iperf3", remedy: "apt-get install iperf3" }],
    version: &["iperf3", "--version"],
    takes: STREAMS,
    refuses: whole_seconds,
    way: Way::Program(Program {
        prepare: nothing,
        begun: Begun::AtSender,
        clients: Clients::One,
        server: |job| Some(format!("exec {} -s -p {}", program("iperf3"), own_port(job))),
        client: |job| {
            let (seconds, streams, port) = (job.seconds(), job.streams(), own_port(job));
            let (iperf3, to, flags) = (program("iperf3"), &job.receiver, job.flags());
            format!("exec {iperf3} -c {to} -p {port} -J -t {seconds} -P {streams}{flags}")
        },
        measure: Measure::Told(told_by_iperf3),
    }),
};

pub(super) static NUTTCP: Tool = Tool {
    name: "nuttcp",
    about: "TCP from memory to memory",
    needs: &[Need { what: "nuttcp", remedy: "apt-get install nuttcp" }],
    version: &["nuttcp", "-V"],
    takes: STREAMS,
    refuses: whole_seconds,
    way: Way::Program(Program {
        prepare: nothing,
        begun: Begun::AtSender,
        clients: Clients::One,
        server: |job| Some(format!("exec {} -S --nofork -P{}", program("nuttcp"), own_port(job))),
        client: |job| {
            let (seconds, streams, port) = (job.seconds(), job.streams(), own_port(job));
            let data = NUTTCP_DATA_PORT + (job.sender * streams) as u16;
            let (nuttcp, to, flags) = (program("nuttcp"), &job.receiver, job.flags());
            format!("exec {nuttcp} -fparse -P{port} -p{data} -T{seconds} -N{streams}{flags} {to}")
        },
        measure: Measure::Told(told_by_nuttcp),
    }),
};

pub(super) static RSYNC: Tool = Tool {
    name: "rsync",
    about: "rsync to its own daemon, whole files, not encrypted",
    needs: &[Need { what: "rsync", remedy: "apt-get install rsync" }],
    version: &["rsync", "--version"],
    takes: FLAGS,
    refuses: |_, _| None,
    way: Way::Program(Program {
        prepare: prepare_rsync,
        begun: Begun::AtSender,
        clients: Clients::Many,
        server: |job| {
            let config = quoted_path(&job.dir.join("rsyncd.conf"));
            let rsync = program("rsync");
            Some(format!("exec {rsync} --daemon --no-detach --port={PORT} --config={config}"))
        },
        client: |job| {
            let (to, source) = (&job.receiver, quoted_path(job.source));
            let place = format!("rsync://{to}:{PORT}/target/{}/", job.sender);
            format!("exec {} -a -W{} {source} {place}", program("rsync"), job.flags())
        },
        measure: Measure::Files,
    }),
};

pub(super) static SCP: Tool = Tool {
    name: "scp",
    about: "scp of OpenSSH",
    needs: &[
        ssh::NEEDS[0],
        ssh::NEEDS[1],
        Need { what: "scp", remedy: "apt-get install openssh-client" },
    ],
    version: &["ssh", "-V"],
    takes: FLAGS,
    refuses: |_, _| None,
    way: Way::Program(Program {
        prepare: ssh::prepare,
        begun: Begun::AtSender,
        clients: Clients::Many,
        server: ssh::server,
        client: |job| {
            let (config, source) = (ssh::client_config(job), quoted_path(job.source));
            let place = quoted(&format!("{}:{}/", job.receiver, job.place().display()));
            let (scp, ssh, flags) = (program("scp"), program("ssh"), job.flags());
            format!("exec {scp} -S {ssh} -q -r -p -F {config}{flags} {source} {place}")
        },
        measure: Measure::Files,
    }),
};

pub(super) static GRIDFTP: Tool = Tool {
    name: "gridftp",
    about: "globus-url-copy to a GridFTP server, not encrypted",
    needs: &[
        Need { what: "globus-url-copy", remedy: "apt-get install globus-gass-copy-progs" },
        Need {
            what: "globus-gridftp-server",
            remedy: "apt-get install globus-gridftp-server-progs",
        },
    ],
    // globus-url-copy fails when it has told its own.
    version: &["globus-gridftp-server", "--version"],
    takes: STREAMS,
    refuses: |_, _| None,
    way: Way::Program(Program {
        prepare: prepare_gridftp,
        begun: Begun::AtSender,
        clients: Clients::Many,
        server: |job| {
            let to = &job.receiver;
            let server = format!(
                "GLOBUS_HOSTNAME={to} exec {} -aa -anonymous-user nobody -p {PORT} \
                 -control-interface {to} -data-interface {to} -home-dir / -disable-usage-stats",
                program("globus-gridftp-server")
            );
            Some(with_names(job, &server))
        },
        client: gridftp_client,
        measure: Measure::Files,
    }),
};

pub(super) static RCLONE: Tool = Tool {
    name: "rclone",
    about: "rclone copy over SFTP",
    needs: &[
        ssh::NEEDS[0],
        ssh::NEEDS[1],
        Need { what: "rclone", remedy: "apt-get install rclone" },
    ],
    version: &["rclone", "version"],
    takes: FLAGS,
    refuses: |_, _| None,
    way: Way::Program(Program {
        prepare: ssh::prepare,
        begun: Begun::AtSender,
        clients: Clients::Many,
        server: ssh::server,
        client: |job| {
            format!(
                "RCLONE_CONFIG=/dev/null exec {} copy -q --sftp-disable-hashcheck \
                 --sftp-host {} --sftp-port {} --sftp-user root --sftp-key-file {}{} {} {}",
                program("rclone"),
                job.receiver,
                ssh::PORT,
                quoted_path(&job.dir.join("user")),
                job.flags(),
                quoted_path(job.source),
                quoted(&format!(":sftp:{}", job.place().display())),
            )
        },
        measure: Measure::Files,
    }),
};

pub(super) static QCP: Tool = Tool {
    name: "qcp",
    about: "qcp: QUIC, begun by ssh",
    needs: &[ssh::NEEDS[0], ssh::NEEDS[1], Need { what: "qcp", remedy: "cargo install qcp" }],
    version: &["qcp", "--version"],
    takes: &[Field::Flags],
    refuses: |_, _| None,
    way: Way::Program(Program {
        prepare: ssh::prepare,
        begun: Begun::AtSender,
        clients: Clients::Many,
        server: ssh::server,
        client: |job| {
            let tree = if job.is_tree() { " -r" } else { "" };
            format!(
                "exec {} -q --ssh {}{tree}{} {} {}",
                program("qcp"),
                ssh::client_program(job),
                job.flags(),
                quoted_path(job.source),
                quoted(&format!("{}:{}/", job.receiver, job.place().display())),
            )
        },
        measure: Measure::Files,
    }),
};

pub(super) static PING: Tool = Tool {
    name: "ping",
    about: "round trips of ICMP",
    needs: &[Need { what: "ping", remedy: "apt-get install iputils-ping" }],
    version: &["ping", "-V"],
    takes: &[Field::Flags],
    refuses: |_, _| None,
    way: Way::Program(Program {
        prepare: nothing,
        begun: Begun::AtSender,
        clients: Clients::Many,
        server: |_| None,
        client: |job| {
            let count = (job.time.as_secs_f64() / PING_SECONDS).ceil().max(1.0);
            let (ping, to, flags) = (program("ping"), &job.receiver, job.flags());
            format!("exec {ping} -q -i {PING_SECONDS} -c {count}{flags} {to}")
        },
        measure: Measure::Told(told_by_ping),
    }),
};

/// One gathers for all, and each sender's files then go where they are looked for.
fn gather_client(job: &Job<'_>) -> String {
    if job.sender > 0 {
        return "exec true".to_owned();
    }
    let name = job.source.file_name().unwrap_or_default().to_string_lossy();
    let from = |sender| format!("bankfull://{}:{PORT}/{name}", Hosts::address(sender));
    let sources: Vec<String> = (0..job.senders).map(|sender| quoted(&from(sender))).collect();
    let words = if job.is_heard { "--json" } else { "-q" };
    let (state, gathered) = (job.dir.join("client"), job.dir.join("gathered"));
    let mut line = format!(
        "{} gather {words} --accept-new --state-dir {}{} {} {}",
        program("bankfull"),
        quoted_path(&state),
        job.flags(),
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

/// The port of a sender's own server.
fn own_port(job: &Job<'_>) -> u16 {
    PORT + job.sender as u16
}

fn whole_seconds(settings: &Settings, _: &Contender) -> Option<String> {
    let is_whole = settings.run.time.subsec_nanos() == 0;
    (!is_whole).then(|| "takes whole seconds only: run.time must be such".to_owned())
}

fn nothing(_: &Job<'_>) -> Result<()> {
    Ok(())
}

/// Globus looks up names of its host and of addresses, which only a file can tell here.
fn prepare_gridftp(job: &Job<'_>) -> Result<()> {
    let mut names = "127.0.0.1 localhost\n".to_owned();
    for host in 0..=job.senders + 1 {
        names += &format!("{} host{host}\n", Hosts::address(host));
    }
    fs::write(job.dir.join("hosts"), names)
        .map_err(|e| LabError::io("cannot write a file of hosts", e))?;
    open_to_all(job)
}

/// With that file, and a name that is in it.
fn with_names(job: &Job<'_>, line: &str) -> String {
    let hosts = quoted_path(&job.dir.join("hosts"));
    let inner = format!("mount --bind {hosts} /etc/hosts; hostname localhost; {line}");
    format!("exec unshare --uts --mount sh -c {}", quoted(&inner))
}

/// For a server that does not run as root, on the way to a place and at it. The way is the run's
/// directory and the lab's around it, both made by us under a name of chance, and nothing above
/// (which others own, and may be open or not). In them are random content, and keys that open
/// nothing but a server of this run; they are root's alone, whatever the mode of their directory.
/// Only the place can be written by others, for as long as the run lasts.
fn open_to_all(job: &Job<'_>) -> Result<()> {
    let open = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    let (place, target) = (job.place(), job.target());
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

/// A value goes to the end of its line, spaces included: nothing is quoted (rsyncd.conf(5)).
fn rsync_config(target: &Path) -> String {
    format!(
        "uid = root\ngid = root\nuse chroot = no\nlog file = /dev/null\npid file =\n\
         [target]\npath = {}\nread only = no\n",
        target.display()
    )
}

/// Small files in the way that is its quickest: pipelined, with some connections at a time.
fn gridftp_client(job: &Job<'_>) -> String {
    let (to, streams) = (&job.receiver, job.streams());
    let tree = if job.is_tree() { "-r -pp -cc 4 -fast -cd " } else { "" };
    // A directory is told from a file by its slash.
    let slash = if job.is_tree() { "/" } else { "" };
    let name = job.source.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let source = quoted(&format!("file://{}{slash}", job.source.display()));
    let place = job.place().join(name);
    let target = quoted(&format!("ftp://{to}:{PORT}{}{slash}", place.display()));
    let flags = job.flags();
    let here = Hosts::address(job.sender);
    let copy = program("globus-url-copy");
    let line = format!("exec {copy} -nodcau {tree}-p {streams}{flags} {source} {target}");
    with_names(job, &format!("GLOBUS_HOSTNAME={here} {line}"))
}

fn told_by_iperf3(out: &str) -> Option<Figures> {
    let told: Value = serde_json::from_str(out).ok()?;
    let end = &told["end"]["sum_received"];
    Some(Figures {
        goodput_bps: Some(end["bits_per_second"].as_f64()?),
        seconds: end["seconds"].as_f64(),
        ..Figures::default()
    })
}

fn told_by_nuttcp(out: &str) -> Option<Figures> {
    let value = |name: &str| {
        let word = out.split_whitespace().find_map(|word| word.strip_prefix(name))?;
        word.strip_prefix('=')?.parse::<f64>().ok()
    };
    Some(Figures {
        goodput_bps: Some(value("rate_Mbps")? * 1e6),
        seconds: value("real_seconds"),
        ..Figures::default()
    })
}

/// `rtt min/avg/max/mdev = 20.1/20.2/20.5/0.1 ms`, and `… 0% packet loss …`.
fn told_by_ping(out: &str) -> Option<Figures> {
    let (_, figures) = out.split_once("min/avg/max")?.1.split_once("= ")?;
    let mut figures = figures.split(['/', ' ']).map_while(|text| text.parse::<f64>().ok());
    let rtt = [figures.next()? / 1e3, figures.next()? / 1e3, figures.next()? / 1e3];
    let lost = out.split("% packet loss").next()?.rsplit(' ').next()?.parse::<f64>().ok()?;
    Some(Figures { rtt_seconds: Some(rtt), lost_share: Some(lost / 100.0), ..Figures::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_a_space_in_it_is_named_to_rsync_as_it_is() {
        let config = rsync_config(Path::new("/tmp/a b/target"));
        assert!(config.lines().any(|line| line == "path = /tmp/a b/target"), "{config}");
    }

    #[test]
    fn what_programs_tell_is_understood() {
        let out = r#"{"end":{"sum_received":{"seconds":8.01,"bits_per_second":9.2e8}}}"#;
        let found = told_by_iperf3(out).unwrap();
        assert_eq!((found.goodput_bps, found.seconds), (Some(9.2e8), Some(8.01)));
        assert_eq!(told_by_iperf3("{\"error\":\"unable to connect\"}"), None);
        let out = "megabytes=95.8 real_seconds=1.00 rate_Mbps=803.2 tx_cpu=5 rx_cpu=9\n";
        let found = told_by_nuttcp(out).unwrap();
        assert_eq!((found.goodput_bps, found.seconds), (Some(803.2e6), Some(1.0)));
        let out = "20 packets transmitted, 19 received, 5% packet loss, time 958ms\n\
                   rtt min/avg/max/mdev = 20.107/20.160/20.477/0.085 ms\n";
        let found = told_by_ping(out).unwrap();
        assert_eq!(found.rtt_seconds, Some([0.020107, 0.02016, 0.020477]));
        assert_eq!(found.lost_share, Some(0.05));
        assert_eq!(told_by_ping("ping: connect: Network is unreachable"), None);
    }
}
