//! Reaching a host over the user's own ssh: starts `bankfull agent` there and speaks the control
//! protocol on its standard input and output.

mod command;
mod deploy;

use super::connector::Connector;
use super::dial::Dialler;
use super::{Far, Greeted, Request, run};
use crate::cancel::Cancel;
use crate::error::{Error, ErrorKind, printable};
use crate::event::{EventSink, Route, Summary};
use crate::net::control::{ControlReader, RERUN_HINT, lock};
use crate::net::pipe::{PipeReader, PipeWriter};
use crate::net::tls;
use crate::options::Fingerprint;
use bankfull_proto::wire::control::Welcome;
use command::{Login, agent_script};
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Exit code of our start script, and of shells, for a program that is not there.
const NOT_FOUND: i32 = 127;
/// Exit code of ssh itself.
const SSH_FAILED: i32 = 255;

/// How long an ssh whose output has ended may take to tell how. [ours: it waits for the far side's
/// close, a round trip or two]
const EXIT_WAIT: Duration = Duration::from_secs(2);

/// What shells may print before the agent speaks. [ours: a long greeting of the day]
const NOISE_BYTES_MAX: usize = 64 << 10;

/// Runs a transfer with an agent on `host`.
pub(crate) fn transfer(
    user: Option<&str>,
    host: &str,
    request: Request<'_>,
    events: &dyn EventSink,
    cancel: &Cancel,
    started: Instant,
) -> Result<Summary, Error> {
    let options = &request.transfer.ssh;
    let login = Login { user, host, options, memory_max: request.transfer.memory_max };
    let timeout = request.transfer.timeout;
    let (far, welcome) = match start(&login, timeout, cancel) {
        Err(Unstarted::NoProgram) if options.deploy => {
            deploy::deploy(&login, events, cancel)?;
            start(&login, timeout, cancel).map_err(|e| e.explain(&login))?
        }
        started => started.map_err(|e| e.explain(&login))?,
    };
    let addresses = data_addresses(&login, &welcome, cancel)?;
    let fingerprint = match (request.transfer.encryption, welcome.fingerprint) {
        (true, Some(fingerprint)) => Some(Fingerprint(fingerprint)),
        (true, None) => {
            let text = format!("the agent on {host} has no certificate");
            return Err(Error::new(ErrorKind::Protocol, text));
        }
        (false, _) => None,
    };
    let tls = fingerprint.map(|_| tls::client_config()).transpose()?;
    let dialler = Dialler { addresses, tls, quic: None, timeout, peer: host.to_owned() };
    // They are made while the two sides agree on the transfer.
    let begun = dialler.begin(request.streams()(None).min(welcome.max_streams));
    let connector = Connector::new(dialler, begun, fingerprint, &welcome);
    run(
        Greeted { far, welcome, rtt: None, asked: false },
        connector,
        request,
        events,
        cancel,
        started,
    )
}

/// Why the agent did not start.
enum Unstarted {
    /// There is no program of that name.
    NoProgram,
    /// ssh said why on standard error.
    Ssh,
    /// What was started there ended and never spoke the protocol.
    Mute,
    /// Something else.
    Other(Error),
}

impl Unstarted {
    fn explain(self, login: &Login<'_>) -> Error {
        let host = login.host;
        let named = login.options.remote_program.as_deref();
        let program = printable(named.unwrap_or("bankfull"));
        let (kind, text) = match self {
            Self::NoProgram if named.is_some() => (
                ErrorKind::FarSide,
                format!(
                    "{host} has no {program}: correct --remote-bankfull, or leave it out for the \
                     one on the PATH there, or for --deploy to put this one there"
                ),
            ),
            Self::NoProgram => (
                ErrorKind::FarSide,
                format!(
                    "{host} has no {program}: install it there, name it with \
                     --remote-bankfull PATH, or let --deploy put this one there"
                ),
            ),
            Self::Ssh => (
                ErrorKind::FarSide,
                format!("ssh could not log in to {host}: try `{}`", login.check_line()),
            ),
            Self::Mute => (
                ErrorKind::Protocol,
                format!(
                    "{program} on {host} is no bankfull, or ended at once for the reason above: \
                     name the right one with --remote-bankfull PATH"
                ),
            ),
            Self::Other(error) => return error,
        };
        Error::new(kind, text)
    }
}

fn start(
    login: &Login<'_>,
    timeout: Duration,
    cancel: &Cancel,
) -> Result<(Far, Welcome), Unstarted> {
    let mut command = login.command(&agent_script(login));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let spawned = command.spawn().map_err(|e| {
        let program = command.get_program().to_string_lossy().into_owned();
        Unstarted::Other(Error::new(
            ErrorKind::FarSide,
            format!("cannot run {program}: {}", crate::error::plain(&e)),
        ))
    })?;
    let mut child = spawned;
    let (Some(input), Some(output)) = (child.stdout.take(), child.stdin.take()) else {
        return Err(Unstarted::Other(Error::interrupted()));
    };
    let input = PipeReader::new(input, timeout);
    let control = input.control();
    let output = PipeWriter::new(output, input.control());
    let child = Arc::new(Mutex::new(child));
    let reaper = Arc::clone(&child);
    let far = Far {
        reader: ControlReader::new(Box::new(input), login.host.to_owned(), RERUN_HINT),
        output: Box::new(output),
        wake: Box::new(move || control.stop()),
        close: Arc::new(move || end(&mut lock(&reaper))),
        peer: login.host.to_owned(),
        route: Route::Ssh,
        noise_bytes_max: NOISE_BYTES_MAX,
    };
    match far.attend(cancel, |far| far.greet(None)) {
        Ok(greeted) => Ok(greeted),
        Err(error) => {
            let code = exit_code(&mut lock(&child), cancel);
            Err(match code {
                _ if cancel.is_cancelled() => Unstarted::Other(Error::interrupted()),
                Some(NOT_FOUND) => Unstarted::NoProgram,
                Some(SSH_FAILED) => Unstarted::Ssh,
                Some(_) if error.kind() == ErrorKind::Network => Unstarted::Mute,
                _ => Unstarted::Other(error),
            })
        }
    }
}

/// Waits a moment for the exit of an ssh whose output has ended.
fn exit_code(child: &mut Child, cancel: &Cancel) -> Option<i32> {
    let deadline = Instant::now() + EXIT_WAIT;
    while Instant::now() < deadline && !cancel.is_cancelled() {
        match child.try_wait() {
            Ok(Some(status)) => return status.code(),
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            Err(_) => return None,
        }
    }
    end(child);
    None
}

/// Gives ssh a moment to end by itself, then ends it.
fn end(child: &mut Child) {
    for _ in 0..25 {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            _ => return,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Where the agent's data port may be reached: the address that ssh itself goes to, then those that
/// the agent knows of itself.
fn data_addresses(
    login: &Login<'_>,
    welcome: &Welcome,
    cancel: &Cancel,
) -> Result<Vec<SocketAddr>, Error> {
    let Some(port) = welcome.data_port else { return Ok(Vec::new()) };
    let mut hosts = vec![login.resolved_host(cancel)?];
    hosts.extend_from_slice(&welcome.data_hosts);
    cancel.attend(move || {
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for host in hosts {
            for address in (host.as_str(), port).to_socket_addrs().into_iter().flatten() {
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
        }
        Ok(addresses)
    })
}
