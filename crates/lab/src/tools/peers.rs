//! One adapter for each program: what serves, what runs, what is measured.

use super::{Figures, Job, Measure, Need, Program, Tool, Way, program, quoted, quoted_path, ssh};
use crate::error::{LabError, Result};
use crate::hosts::Hosts;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Port of the servers that take any.
const PORT: u16 = 7700;

/// Distance of pings. (ours)
const PING_SECONDS: f64 = 0.05;

pub(super) static BANKFULL: Tool = Tool {
    name: "bankfull",
    about: "bankfull cp to bankfull serve, encrypted",
    needs: &[Need { what: "bankfull", remedy: "cargo build --release -p bankfull-cli" }],
    version: &["bankfull", "--version"],
    way: Way::Program(Program {
        prepare: nothing,
        server: |job| {
            let state = quoted_path(&job.dir.join("daemon"));
            let (target, bankfull) = (quoted_path(&job.target()), program("bankfull"));
            Some(format!("exec {bankfull} serve {target} --listen :{PORT} --state-dir {state}"))
        },
        client: |job| {
            let streams = job.contender.streams.map(|n| format!(" --streams {n}"));
            format!(
                "exec {} cp -q --accept-new --state-dir {}{}{} {} {}",
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

pub(super) static IPERF3: Tool = Tool {
    name: "iperf3",
    about: "TCP from memory to memory",
    needs: &[Need { what: "iperf3", remedy: "apt-get install iperf3" }],
    version: &["iperf3", "--version"],
    way: Way::Program(Program {
        prepare: nothing,
        server: |_| Some("exec iperf3 -s".to_owned()),
        client: |job| {
            let (seconds, streams) = (job.seconds(), job.streams());
            format!("exec iperf3 -c {} -J -t {seconds} -P {streams}{}", job.receiver, job.flags())
        },
        measure: Measure::Told(told_by_iperf3),
    }),
};

pub(super) static NUTTCP: Tool = Tool {
    name: "nuttcp",
    about: "TCP from memory to memory",
    needs: &[Need { what: "nuttcp", remedy: "apt-get install nuttcp" }],
    version: &["nuttcp", "-V"],
    way: Way::Program(Program {
        prepare: nothing,
        server: |_| Some("exec nuttcp -S --nofork".to_owned()),
        client: |job| {
            let (seconds, streams) = (job.seconds(), job.streams());
            let flags = job.flags();
            format!("exec nuttcp -fparse -T{seconds} -N{streams}{flags} {}", job.receiver)
        },
        measure: Measure::Told(told_by_nuttcp),
    }),
};

pub(super) static RSYNC: Tool = Tool {
    name: "rsync",
    about: "rsync to its own daemon, whole files, not encrypted",
    needs: &[Need { what: "rsync", remedy: "apt-get install rsync" }],
    version: &["rsync", "--version"],
    way: Way::Program(Program {
        prepare: prepare_rsync,
        server: |job| {
            let config = quoted_path(&job.dir.join("rsyncd.conf"));
            Some(format!("exec rsync --daemon --no-detach --port={PORT} --config={config}"))
        },
        client: |job| {
            let (to, source) = (&job.receiver, quoted_path(job.source));
            let place = format!("rsync://{to}:{PORT}/target/{}/", job.sender);
            format!("exec rsync -a -W{} {source} {place}", job.flags())
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
    way: Way::Program(Program {
        prepare: ssh::prepare,
        server: ssh::server,
        client: |job| {
            let (config, source) = (ssh::client_config(job), quoted_path(job.source));
            let place = quoted(&format!("{}:{}/", job.receiver, job.place().display()));
            format!("exec scp -q -r -p -F {config}{} {source} {place}", job.flags())
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
    version: &["globus-url-copy", "-version"],
    way: Way::Program(Program {
        prepare: prepare_gridftp,
        server: |job| {
            let to = &job.receiver;
            let server = format!(
                "GLOBUS_HOSTNAME={to} exec globus-gridftp-server -aa -anonymous-user nobody \
                 -p {PORT} -control-interface {to} -data-interface {to} -home-dir / \
                 -disable-usage-stats"
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
    way: Way::Program(Program {
        prepare: ssh::prepare,
        server: ssh::server,
        client: |job| {
            format!(
                "RCLONE_CONFIG=/dev/null exec rclone copy -q --sftp-disable-hashcheck \
                 --sftp-host {} --sftp-port {} --sftp-user root --sftp-key-file {}{} {} {}",
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
    way: Way::Program(Program {
        prepare: ssh::prepare,
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
    way: Way::Program(Program {
        prepare: nothing,
        server: |_| None,
        client: |job| {
            let count = (job.time.as_secs_f64() / PING_SECONDS).ceil().max(1.0);
            format!("exec ping -q -i {PING_SECONDS} -c {count}{} {}", job.flags(), job.receiver)
        },
        measure: Measure::Told(told_by_ping),
    }),
};

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

/// For a server that does not run as root, on the way to a place and at it.
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
    let text = format!(
        "uid = root\ngid = root\nuse chroot = no\nlog file = /dev/null\npid file =\n\
         [target]\npath = {}\nread only = no\n",
        job.target().display()
    );
    fs::write(job.dir.join("rsyncd.conf"), text)
        .map_err(|e| LabError::io("cannot prepare rsync", e))
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
    let line = format!("exec globus-url-copy -nodcau {tree}-p {streams}{flags} {source} {target}");
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
