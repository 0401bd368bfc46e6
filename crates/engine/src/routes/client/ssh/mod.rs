//! Connection to a host over the user's own ssh: starts `bankfull agent` there, with the control
//! protocol on its standard input and output.

mod command;
mod deploy;

use super::connector::Connector;
use super::dial::Dialer;
use super::{Handshaken, Peer, Request, run};
use crate::base::cancel::{Cancel, run_abandonable};
use crate::base::error::{Error, ErrorKind, printable};
use crate::base::event::{EventSink, Route, Summary};
use crate::base::sync::lock;
use crate::model::options::Fingerprint;
use crate::transport::control::{ControlReader, RERUN_HINT};
use crate::transport::pipe::{PipeReader, PipeWriter};
use crate::transport::tls;
use bankfull_proto::wire::control::Welcome;
use command::{Login, agent_script};
use std::net::{SocketAddr, ToSocketAddrs};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::debug;

/// Exit code of the start script, and of shells, for a missing program.
const EXIT_NOT_FOUND: i32 = 127;
/// Exit code of ssh itself for its own failures.
const EXIT_SSH_FAILED: i32 = 255;

/// Time for ssh to exit after the end of its output. (chosen: it waits for the remote close, one or
/// two RTTs)
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum output of shells before the agent's first message. (chosen: a long message of the day)
const MAX_NOISE_BYTES: usize = 64 << 10;

/// Runs a transfer with an agent on `host`.
pub(crate) fn transfer(
    user: Option<&str>,
    host: &str,
    request: Request<'_>,
    events: &dyn EventSink,
    cancel: &Cancel,
    started: Instant,
) -> Result<Summary, Error> {
    let options = &request.options.ssh;
    let login = Login { user, host, options, max_memory: request.options.max_memory };
    let timeout = request.options.timeout;
    let (peer, welcome) = match start(&login, timeout, cancel) {
        Err(AgentStartError::NotFound) if options.deploy => {
            deploy::deploy(&login, events, cancel)?;
            start(&login, timeout, cancel).map_err(|e| e.into_error(&login))?
        }
        started => started.map_err(|e| e.into_error(&login))?,
    };
    let addresses = data_addresses(&login, &welcome, timeout, cancel)?;
    debug!(?addresses, "addresses of the agent's data port");
    let fingerprint = match (request.options.encryption, welcome.fingerprint) {
        (true, Some(fingerprint)) => Some(Fingerprint(fingerprint)),
        (true, None) => {
            let text = format!("the agent on {host} has no certificate: update bankfull there");
            return Err(Error::new(ErrorKind::Protocol, text));
        }
        (false, _) => None,
    };
    let tls = fingerprint.map(|_| tls::client_config()).transpose()?;
    let dialer = Dialer { addresses, tls, quic: None, timeout, peer: host.to_owned() };
    // They connect while the two sides negotiate.
    let pending = dialer.start_dialing(request.streams()(None).min(welcome.max_streams));
    let connector = Connector::new(dialer, pending, fingerprint, &welcome);
    run(
        Handshaken { peer, welcome, rtt: None, request_sent: false },
        connector,
        request,
        events,
        cancel,
        started,
    )
}

/// Reason why the agent did not start.
enum AgentStartError {
    /// No program of that name.
    NotFound,
    /// ssh failed and printed the reason on standard error.
    LoginFailed,
    /// The program exited without speaking the protocol.
    NotBankfull,
    /// No response within the timeout.
    NoResponse,
    /// Any other error.
    Other(Error),
}

impl AgentStartError {
    fn into_error(self, login: &Login<'_>) -> Error {
        let host = login.host;
        let named = login.options.remote_program.as_deref();
        let program = printable(named.unwrap_or("bankfull"));
        let (kind, text) = match self {
            Self::NotFound if named.is_some() => (
                ErrorKind::AgentStart,
                format!(
                    "{host} has no {program}: correct --remote-bankfull, or leave it out to use \
                     the one on the PATH there, or --deploy"
                ),
            ),
            Self::NotFound => (
                ErrorKind::AgentStart,
                format!(
                    "{host} has no {program}: install it there, name it with \
                     --remote-bankfull PATH, or use --deploy to copy this one there"
                ),
            ),
            Self::LoginFailed => (
                ErrorKind::AgentStart,
                format!("ssh could not log in to {host}: try `{}`", login.check_command()),
            ),
            Self::NotBankfull => (
                ErrorKind::Protocol,
                format!(
                    "{program} on {host} did not start as a bankfull agent: name the right \
                     program with --remote-bankfull PATH, or try `{}`, which shows what the \
                     shell there writes at its start, or that it does not let commands run",
                    login.check_command()
                ),
            ),
            Self::NoResponse => (
                ErrorKind::Timeout,
                format!(
                    "no response from {host} over ssh within the timeout: is the host up, and do \
                     the start files of the shell there end? Try `{}`",
                    login.check_command()
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
) -> Result<(Peer, Welcome), AgentStartError> {
    let mut command = login.command(&agent_script(login));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let program = &*command.get_program().to_string_lossy();
    // The arguments are not logged, as they may contain secrets.
    debug!(program, host = login.host, "ssh started");
    let spawned = command.spawn().map_err(|e| {
        let program = command.get_program().to_string_lossy().into_owned();
        AgentStartError::Other(Error::new(
            ErrorKind::AgentStart,
            format!("cannot run {program}: {}", crate::base::error::os_message(&e)),
        ))
    })?;
    let mut child = spawned;
    let (Some(input), Some(output)) = (child.stdout.take(), child.stdin.take()) else {
        return Err(AgentStartError::Other(Error::interrupted()));
    };
    let input = PipeReader::new(input, timeout);
    let control = input.control();
    let output = PipeWriter::new(output, input.control());
    let child = Arc::new(Mutex::new(child));
    let reaper = Arc::clone(&child);
    let peer = Peer {
        reader: ControlReader::new(Box::new(input), login.host.to_owned(), RERUN_HINT),
        output: Box::new(output),
        wake: Box::new(move || control.stop()),
        close: Arc::new(move |_| terminate(&mut lock(&reaper))),
        name: login.host.to_owned(),
        route: Route::Ssh,
        max_noise_bytes: MAX_NOISE_BYTES,
        greeting_time: timeout,
        binding: None,
    };
    // A login may take long, as the user types a password: the time begins with the first output.
    let begun = peer.run_cancellable(cancel, Peer::send_hello);
    match begun.and_then(|(peer, ())| peer.run_greeting(cancel, Peer::read_welcome)) {
        Ok(handshaken) => Ok(handshaken),
        Err(error) => {
            if error.kind() == ErrorKind::Timeout {
                let mut child = lock(&child);
                let _ = child.kill().and_then(|()| child.wait());
                return Err(AgentStartError::NoResponse);
            }
            let code = exit_code(&mut lock(&child), cancel);
            Err(match code {
                _ if cancel.is_cancelled() => AgentStartError::Other(Error::interrupted()),
                Some(EXIT_NOT_FOUND) => AgentStartError::NotFound,
                Some(EXIT_SSH_FAILED) => AgentStartError::LoginFailed,
                _ if error.kind() == ErrorKind::Protocol => AgentStartError::NotBankfull,
                Some(_) if error.kind() == ErrorKind::Network => AgentStartError::NotBankfull,
                _ => AgentStartError::Other(error),
            })
        }
    }
}

/// Waits briefly for the exit code of an ssh whose output has ended.
fn exit_code(child: &mut Child, cancel: &Cancel) -> Option<i32> {
    let deadline = Instant::now() + EXIT_TIMEOUT;
    while Instant::now() < deadline && !cancel.is_cancelled() {
        match child.try_wait() {
            Ok(Some(status)) => return status.code(),
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            Err(_) => return None,
        }
    }
    terminate(child);
    None
}

/// Waits briefly for ssh to exit, then kills it.
fn terminate(child: &mut Child) {
    for _ in 0..25 {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            _ => return,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Addresses of the agent's data port: ssh's own destination, then those that the agent reports.
fn data_addresses(
    login: &Login<'_>,
    welcome: &Welcome,
    timeout: Duration,
    cancel: &Cancel,
) -> Result<Vec<SocketAddr>, Error> {
    let Some(port) = welcome.data_port else { return Ok(Vec::new()) };
    let mut hosts = vec![login.resolved_host(timeout, cancel)?];
    hosts.extend_from_slice(&welcome.data_hosts);
    let late = Instant::now() + timeout;
    let found = run_abandonable(
        || cancel.is_cancelled() || Instant::now() >= late,
        move || {
            let mut addresses: Vec<SocketAddr> = Vec::new();
            for host in hosts {
                for address in (host.as_str(), port).to_socket_addrs().into_iter().flatten() {
                    if !addresses.contains(&address) {
                        addresses.push(address);
                    }
                }
            }
            Ok(addresses)
        },
    );
    match found {
        // Without addresses, the data goes through ssh.
        Err(e) if e.kind() == ErrorKind::Interrupted && !cancel.is_cancelled() => Ok(Vec::new()),
        found => found,
    }
}
