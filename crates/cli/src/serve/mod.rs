//! `bankfull serve`: binds the daemon, shows how to reach it, and runs it until signals end it.

mod audit;
mod rules;
mod service;

use crate::address::{self, host_name};
use crate::environment::Environment;
use crate::exit::Exit;
use crate::flags::ServeFlags;
use crate::log;
use crate::metrics::{DaemonMetrics, MetricsPort, MetricsSink};
use crate::output::{self, Beginning, Ending, Render, Reporter, Serving, served_text};
use crate::signals::{self, Caught, Step};
use crate::tokens::{self, Store};
use audit::{AuditFile, AuditLog, AuditSink};
use bankfull::{Access, Cancel, CertificateFiles, Error, ServeOptions, Served, Server, Share};
use rules::{Reloader, Rules};
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use tracing::{info, warn};

/// Runs the daemon until signals end it.
pub(crate) fn run(flags: ServeFlags, shares: Vec<Share>) -> Exit {
    let show = (&flags.show).into();
    let is_silent = log::owns_terminal(&show, log::Role::Daemon);
    let render = output::daemon_render(&show, is_silent);
    let environment = Environment::read();
    let drain_timeout = flags.drain_timeout;
    let bound = log::start(&show, &environment, log::Role::Daemon)
        .and_then(|()| bind(flags, environment, shares));
    // Before clients can learn of the daemon: from then on, a signal stops it in order.
    let bound = bound.and_then(|bound| Ok((bound, signals::catch(is_service())?)));
    match bound {
        Ok((bound, caught)) => serve(bound, (caught, drain_timeout), render),
        Err(error) => output::end(render, &Ending::Failed(&error)),
    }
}

/// A bound daemon, with the texts to show about it.
struct Bound {
    server: Arc<Server>,
    serving: Serving,
    rules: Rules,
    audit_file: Option<AuditFile>,
    /// Port of the metrics, if they are offered.
    metrics_port: Option<MetricsPort>,
}

fn bind(flags: ServeFlags, environment: Environment, shares: Vec<Share>) -> Result<Bound, Error> {
    let metrics_port = flags.metrics.as_ref().map(MetricsPort::bind).transpose()?;
    let audit_file = flags.audit_log.clone().map(AuditFile::open).transpose()?;
    let invited = flags.invite.clone();
    let mut options = options(&flags, &environment)?;
    let rules = Rules::find(flags, environment)?;
    let invited = invited.map(|name| Invited::create(&rules, name)).transpose()?;
    let (access, token_warning) = rules.read(shares)?;
    options.access = access;
    let metrics = metrics_port.as_ref().map(MetricsPort::address);
    let server = Arc::new(match service::listener()? {
        Some(listener) => Server::bind_to(listener, options.clone())?,
        None => Server::bind(options.clone())?,
    });
    let invite = invited.map(|invited| invited.line(&server, &options.access.served));
    let (address, fingerprint) = (server.local_addr(), server.fingerprint());
    let example = client_command(address, &fingerprint.to_string(), &options);
    let warnings = token_warning.into_iter().chain(without_token(&options, address)).collect();
    let limits = server.limits();
    let served = options.access.served;
    let serving =
        Serving { address, fingerprint, served, example, limits, warnings, metrics, invite };
    Ok(Bound { server, serving, rules, audit_file, metrics_port })
}

/// A token created with the daemon, and removed again if the daemon does not start.
struct Invited {
    store: Store,
    name: String,
    token: Option<String>,
}

impl Invited {
    fn create(rules: &Rules, name: String) -> Result<Self, Error> {
        let store = rules.store().clone();
        let token = Some(tokens::add(&store, &name)?);
        Ok(Self { store, name, token })
    }

    /// Returns the invite, and keeps the token.
    fn line(mut self, server: &Server, served: &Served) -> String {
        let address = server.local_addr();
        let host = match address.ip() {
            any if any.is_unspecified() => host_name(),
            ip => ip.to_canonical().to_string(),
        };
        let place = match served {
            Served::Shares(shares) if shares.len() == 1 => &*shares[0].name,
            _ => "",
        };
        let token = self.token.take().unwrap_or_default();
        tokens::invite_line((&host, address.port()), place, server.fingerprint(), token)
    }
}

impl Drop for Invited {
    fn drop(&mut self) {
        if self.token.is_some() {
            tokens::remove_created(&self.store, &self.name);
        }
    }
}

fn serve(
    bound: Bound,
    (caught, drain_timeout): (Caught, Duration),
    mut render: Box<dyn Render>,
) -> Exit {
    log_start(&bound.serving);
    render.begin(&Beginning::Serve(bound.serving));
    let reporter = match Reporter::start(render) {
        Ok(reporter) => reporter,
        Err(exit) => return exit,
    };
    let metrics = bound.metrics_port.map(|port| (port, DaemonMetrics::new()));
    let warner = || {
        let (warn, metrics) = (reporter.warner(), metrics.as_ref());
        let count = metrics.map(|(_, metrics)| metrics.warning_counter());
        move |text: String| {
            let _ = count.as_ref().map(|count| count.inc());
            warn(text);
        }
    };
    let reloader = Reloader::new(bound.rules, Arc::clone(&bound.server), warner());
    let audit_log = bound.audit_file.map(|file| AuditLog::start(file, warner())).transpose();
    let result = audit_log.and_then(|audit_log| {
        let audit_log = audit_log.as_ref();
        let running = Running { server: &bound.server, audit_log, metrics, reloader };
        run_until_signalled(running, (caught, drain_timeout), &reporter)
    });
    let render = reporter.finish();
    match &result {
        Ok(()) => output::end(render, &Ending::Stopped),
        Err(error) => output::end(render, &Ending::Failed(error)),
    }
}

/// Logs how clients reach the daemon; the terminal shows it in any case.
fn log_start(serving: &Serving) {
    let root = &*served_text(&serving.served);
    let (address, fingerprint) = (serving.address, serving.fingerprint);
    info!(target: log::STARTUP_TARGET, root, %address, %fingerprint, "serving");
    for text in &serving.warnings {
        warn!(target: log::STARTUP_TARGET, text = &**text, "warning");
    }
}

/// Longest wait for sessions to end after an abort. (chosen: the final message to a client has a
/// second; a thread that a disk or file system blocks may take forever)
const ABORT_TIMEOUT: Duration = Duration::from_millis(1700);

/// Time to write the last line of the log. (chosen: far more than a line takes)
const LAST_LINE_TIME: Duration = Duration::from_millis(100);

/// Ends the program unless it has ended by itself.
fn end_program_after(timeout: Duration) {
    thread::sleep(timeout);
    let text = "ended without waiting for threads that do not end: is a disk stalled?";
    // In another thread: a blocked output must not delay the exit.
    let warn = move || warn!(target: log::STARTUP_TARGET, text, "warning");
    if thread::Builder::new().spawn(warn).is_ok() {
        thread::sleep(LAST_LINE_TIME);
    }
    bankfull::exit_now(Exit::Interrupted.code())
}

/// A daemon that is about to serve.
struct Running<'a, W> {
    server: &'a Arc<Server>,
    audit_log: Option<&'a AuditLog>,
    metrics: Option<(MetricsPort, DaemonMetrics)>,
    reloader: Reloader<W>,
}

/// Runs the server: the first signal lets sessions finish for `drain_timeout`, the second one ends
/// them, the third one ends the program.
fn run_until_signalled(
    running: Running<'_, impl Fn(String) + Send + 'static>,
    (caught, drain_timeout): (Caught, Duration),
    reporter: &Reporter,
) -> Result<(), Error> {
    let Running { server, audit_log, metrics, reloader } = running;
    let (drain, abort) = (Cancel::new(), Cancel::new());
    let step = |cancel: &Cancel| -> Step {
        let (cancel, show) = (cancel.clone(), reporter.stopping());
        Box::new(move || {
            if !cancel.is_cancelled() {
                cancel.cancel();
                info!(target: log::STARTUP_TARGET, "stopping");
                show();
            }
        })
    };
    let (start_draining, end_sessions) = (step(&drain), step(&abort));
    let (first_signal, signals) = mpsc::channel();
    let second_signal = first_signal.clone();
    // Started now, as no thread may be available later.
    let end = move || {
        if signals.recv().is_ok() {
            let _ = signals.recv_timeout(drain_timeout);
            end_sessions();
            end_program_after(ABORT_TIMEOUT);
        }
    };
    thread::Builder::new().spawn(end).map_err(|e| Error::thread_start(&e))?;
    let first: Step = Box::new(move || {
        service::stopping(drain_timeout + ABORT_TIMEOUT);
        start_draining();
        let _ = first_signal.send(());
    });
    let second: Step = Box::new(move || {
        let _ = second_signal.send(());
    });
    let reload = reloader.start()?;
    service::watch(server)?;
    let reload = is_service().then(|| -> signals::Repeated { Box::new(reload) });
    caught.run(vec![first, second], reload)?;
    service::ready(&format!("listening on {}", server.local_addr()));
    let Some((port, metrics)) = metrics else {
        let audited = AuditSink { log: audit_log, next: reporter };
        return server.run(&audited, &drain, &abort);
    };
    port.serve(metrics.exporter(server, &drain))?;
    let counted = MetricsSink { metrics: &metrics, next: reporter };
    server.run(&AuditSink { log: audit_log, next: &counted }, &drain, &abort)
}

/// True unless the daemon runs on a terminal, whose closing stops it.
fn is_service() -> bool {
    !std::io::stdin().is_terminal()
}

/// Builds the options from the flags, still without rules for clients.
fn options(flags: &ServeFlags, environment: &Environment) -> Result<ServeOptions, Error> {
    let access = Access::new(Served::Shares(Vec::new()));
    let mut options = ServeOptions::with_access(access, address::resolve(&flags.listen)?);
    options.allow_owner = flags.allow_owner;
    options.allow_devices = flags.allow_devices;
    options.allow_privileged_xattrs = flags.allow_privileged_xattrs;
    options.allow_unencrypted = flags.allow_no_encryption;
    options.certificate = certificate_files(flags);
    options.state_dir = flags.state_dir.clone().or_else(|| environment.state_dir.clone());
    options.max_connections = flags.max_connections;
    options.timeout = flags.timeout;
    options.link_rate = flags.link_rate;
    options.max_memory = flags.max_memory;
    Ok(options)
}

/// Returns the files of the certificate, if it is the administrator's.
fn certificate_files(flags: &ServeFlags) -> Option<CertificateFiles> {
    let (certificate, private_key) = (flags.certificate.clone()?, flags.private_key.clone()?);
    Some(CertificateFiles { certificate, private_key })
}

/// Returns a warning if the daemon has no token: whom it then serves, and the way out.
fn without_token(options: &ServeOptions, address: SocketAddr) -> Option<String> {
    (!options.access.needs_token()).then(|| {
        let who = match address.ip().is_loopback() {
            true => "every user of this host",
            false => "any host that reaches this port",
        };
        let may = if options.access.read_only { "read" } else { "read and write" };
        let root = served_text(&options.access.served);
        format!(
            "no token is set: {who} can {may} {root} with the rights of this daemon; set one with \
             bankfull token create or --token-file"
        )
    })
}

/// Returns an example command for clients.
fn client_command(address: SocketAddr, fingerprint: &str, options: &ServeOptions) -> String {
    let share = match &options.access.served {
        Served::Shares(shares) => shares.first().map(|share| format!("{}/", share.name)),
        Served::Root(_) => None,
    };
    let share = share.unwrap_or_default();
    let place = format!("bankfull://{}:{}/{share}", client_host(address), address.port());
    let operands =
        if options.access.read_only { format!("{place}SRC .") } else { format!("SRC {place}") };
    let token = if options.access.needs_token() { " --token-file FILE" } else { "" };
    format!("bankfull cp {operands} --fingerprint {fingerprint}{token}")
}

/// Returns the address if it names one host, else the name of this host.
fn client_host(address: SocketAddr) -> String {
    match address {
        _ if address.ip().is_unspecified() => host_name(),
        SocketAddr::V4(v4) => v4.ip().to_string(),
        SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Cli, Command};
    use clap::Parser;

    fn flags(line: &str) -> ServeFlags {
        let words = ["bankfull", "serve"].into_iter().chain(line.split(' '));
        let Command::Serve(flags) = Cli::try_parse_from(words).unwrap().command else { panic!() };
        *flags
    }

    fn made_with(line: &str, environment: Environment) -> ServeOptions {
        let dir = tempfile::tempdir().unwrap();
        let mut flags = flags(line);
        let mut options = options(&flags, &environment).unwrap();
        // Without the tokens of this host's user.
        flags.state_dir = Some(dir.path().to_owned());
        options.access = Rules::find(flags, environment).unwrap().read(Vec::new()).unwrap().0;
        options
    }

    fn made(line: &str) -> ServeOptions {
        made_with(line, Environment::default())
    }

    fn with_token(mut options: ServeOptions) -> ServeOptions {
        options.access.token = Some(b"t".to_vec());
        options
    }

    #[test]
    fn flags_reach_the_options() {
        let options = made(
            "/srv --listen 127.0.0.1:99 --read-only --allow-no-encryption --state-dir /s \
             --max-connections 9 --timeout 2",
        );
        assert_eq!(options.access.served, Served::Root("/srv".into()));
        assert_eq!(options.listen, "127.0.0.1:99".parse().unwrap());
        assert!(options.access.read_only && options.allow_unencrypted);
        assert_eq!(options.state_dir, Some("/s".into()));
        assert_eq!(options.max_connections, 9);
        assert_eq!(options.timeout.as_secs(), 2);
    }

    #[test]
    fn environment_provides_defaults() {
        let environment = Environment {
            token: Some("secret".into()),
            state_dir: Some("/state".into()),
            ..Environment::default()
        };
        let options = made_with("/srv", environment);
        assert_eq!(options.access.token.as_deref(), Some(&b"secret"[..]));
        assert_eq!(options.state_dir, Some("/state".into()));
    }

    #[test]
    fn listen_host_is_resolved_and_empty_means_all() {
        assert!(made("/srv --listen :99").listen.ip().is_unspecified());
        assert!(made("/srv").listen.ip().is_unspecified());
        assert!(made("/srv --listen localhost:99").listen.ip().is_loopback());
    }

    #[test]
    fn daemon_without_token_gives_a_warning() {
        for (line, who_and_what) in [
            ("/srv --listen 0.0.0.0:99", "any host that reaches this port can read and write /srv"),
            ("/srv --listen 127.0.0.1:99", "every user of this host can read and write /srv"),
            ("/srv --listen [::1]:99 --read-only", "every user of this host can read /srv"),
        ] {
            let text = format!(
                "no token is set: {who_and_what} with the rights of this daemon; \
                 set one with bankfull token create or --token-file"
            );
            let shown = |options: &ServeOptions| without_token(options, options.listen);
            assert_eq!(shown(&made(line)), Some(text));
            assert_eq!(shown(&with_token(made(line))), None);
        }
    }

    #[test]
    fn client_command_fits_the_daemon() {
        let command = |options: &ServeOptions| client_command(options.listen, "sha256:ab", options);
        assert_eq!(
            command(&made("/srv --listen [::1]:99")),
            "bankfull cp SRC bankfull://[::1]:99/ --fingerprint sha256:ab"
        );
        assert_eq!(
            command(&with_token(made("/srv --listen 127.0.0.1:99 --read-only"))),
            "bankfull cp bankfull://127.0.0.1:99/SRC . --fingerprint sha256:ab --token-file FILE"
        );
        let anywhere = command(&made("/srv --listen :99"));
        assert!(!anywhere.contains("[::]") && !anywhere.contains("0.0.0.0"), "{anywhere}");
    }
}
