//! Copies within this host. Both sides of a session run in this process and settle every file with
//! the same messages, rules and journal as between hosts; only the data takes a short cut: blocks
//! are shared (reflink) or copied by the kernel, and cross no connection.

mod work;

use crate::anchor::{Anchor, ReceiveOptions};
use crate::cancel::Cancel;
use crate::client::path_bytes;
use crate::counts::add;
use crate::driver::{Drive, Latch, tell_landing};
use crate::error::{Error, ErrorKind};
use crate::event::{Event, EventSink, NoEvents, Route, Summary};
use crate::net::control::{ControlReader, Outbox};
use crate::options::Direct;
use crate::overrides::Overrides;
use crate::receiver::{Receiver, Target};
use crate::sender::Sender;
use crate::sender::walk::SourceItem;
use crate::session::{Allowed, Ends, Session, Tally};
use crate::threads::try_start;
use crate::transfer::Transfer;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Instant;

/// Copies within this host.
pub(crate) fn run(
    transfer: &Transfer,
    events: &dyn EventSink,
    cancel: &Cancel,
    started: Instant,
) -> Result<Summary, Error> {
    let typed: Vec<_> = transfer.sources.iter().map(|s| path_bytes(s.path())).collect();
    let items = Anchor::Host.find_sources(&typed)?;
    let sources: Vec<_> = items.iter().map(|item| item.to_source()).collect();
    let options = ReceiveOptions {
        fsync: transfer.fsync,
        checksum: transfer.checksum,
        dry_run: transfer.dry_run,
        parent_is_planned: false,
        set_id: true,
    };
    let destination = path_bytes(transfer.destination.path());
    refuse_into_itself(&items, transfer.destination.path())?;
    let (target, landing) = Anchor::Host.open_destination(&destination.0, &sources, options)?;
    tell_landing(events, transfer, &landing);
    let software = crate::client::software();
    events.event(Event::Connected { route: Route::Local, software, encrypted: false });
    // What is shared, or copied by the kernel, is not written here.
    let overrides = Overrides { direct: Direct::Off, ..Overrides::default() };
    let session = Arc::new(Session::new(overrides, 0));
    let tally = Tally::new(events, started);
    let drive = Drive {
        session: Arc::clone(&session),
        tally: &tally,
        cancel,
        timeout: transfer.timeout,
        progress: true,
        over: Latch::default(),
        steer: std::sync::Mutex::default(),
    };
    let (near, far) =
        UnixStream::pair().map_err(|e| Error::local("cannot make a socket pair", &e))?;
    let copy = Copy { drive: &drive, session: &session, threads: transfer.streams_for(None) };
    let allowed = Allowed::default();
    copy.run(&items, target, near, far)
        .map(|ends| tally.summary(&ends, &allowed, started.elapsed()))
}

/// A copy of a directory into itself would never end.
fn refuse_into_itself(items: &[SourceItem], destination: &Path) -> Result<(), Error> {
    // What does not exist yet would be made in its parent.
    let parent = destination.parent().filter(|p| !p.as_os_str().is_empty());
    let found =
        destination.canonicalize().or_else(|_| parent.unwrap_or(Path::new(".")).canonicalize());
    let Ok(destination) = found else { return Ok(()) };
    for item in items.iter().filter(|item| item.stat.kind == bankfull_sys::Kind::Dir) {
        let inside = item.typed.canonicalize().is_ok_and(|source| destination.starts_with(source));
        if inside {
            return Err(Error::new(
                ErrorKind::Usage,
                format!(
                    "cannot copy {} into itself: choose a destination outside it",
                    item.typed.display()
                ),
            ));
        }
    }
    Ok(())
}

/// The parts of a running local copy.
struct Copy<'c> {
    drive: &'c Drive<'c>,
    session: &'c Arc<Session>,
    threads: u32,
}

impl Copy<'_> {
    fn run(
        &self,
        items: &[SourceItem],
        target: Target,
        near: UnixStream,
        far: UnixStream,
    ) -> Result<Ends, Error> {
        // Two sides, one set of figures: the receiver's.
        let unseen = Tally::new(&NoEvents, Instant::now());
        let (to_receiver, to_sender) = (Outbox::default(), Outbox::default());
        to_sender.wait_when_full();
        let sender = Sender::new(self.session, to_receiver.clone(), &unseen, target.dry_run);
        let session = Arc::clone(self.session);
        let (receiver, compare) =
            Receiver::new(session, to_sender.clone(), self.drive.tally, target);
        let mut sender_reader = self.reader(&near)?;
        let mut receiver_reader = self.reader(&far)?;
        let mover = work::Mover::new(&sender, &receiver);
        let loss = sender_reader.loss();
        let loss = &loss;
        thread::scope(|scope| {
            for (outbox, output) in [(&to_receiver, near), (&to_sender, far)] {
                let release = outbox.clone();
                self.session.on_stop(move || release.release());
                self.session.spawn(scope, move || {
                    if let Err(e) = outbox.run_writer(Box::new(output), loss) {
                        self.session.fail(e);
                    }
                });
            }
            self.session.spawn(scope, || self.drive.tick(&to_sender));
            self.session.spawn(scope, || sender.walk(items));
            self.session.spawn(scope, || receiver.run_compare(compare));
            let workers = self.start_movers(scope, &mover);
            self.session.spawn(scope, || {
                sender.finish(|| workers.into_iter().for_each(|w| drop(w.join())));
            });
            self.session.spawn(scope, || {
                if let Err(e) = sender.run_control(&mut sender_reader) {
                    self.session.fail(e);
                }
            });
            let result = receiver.run_control(&mut receiver_reader);
            if result.is_ok() {
                receiver.finish();
            }
            let result = match result {
                Ok(sender) => Ok(Ends { sender, receiver: self.drive.tally.report() }),
                Err(error) => {
                    self.session.fail(error);
                    Err(self.session.take_error().unwrap_or_else(Error::interrupted))
                }
            };
            to_sender.close();
            to_receiver.close();
            if result.is_ok() {
                to_sender.wait_gone(self.drive.timeout);
            }
            self.drive.over.set();
            result
        })
    }

    /// As many as there can be, if not as many as there are to be.
    fn start_movers<'scope, 'env: 'scope>(
        &self,
        scope: &'scope Scope<'scope, 'env>,
        mover: &'scope work::Mover<'_, '_>,
    ) -> Vec<ScopedJoinHandle<'scope, ()>> {
        let mut workers = Vec::new();
        for number in 0..self.threads {
            match try_start(scope, move || mover.run(number)) {
                Ok(worker) => workers.push(worker),
                Err(_) if number > 0 => break,
                Err(error) => {
                    self.session.fail(error);
                    break;
                }
            }
            add(&self.drive.tally.counts.streams, 1);
        }
        workers
    }

    fn reader(&self, socket: &UnixStream) -> Result<ControlReader, Error> {
        let unusable = |e: io::Error| Error::local("a socket pair is unusable", &e);
        let input = socket.try_clone().map_err(unusable)?;
        let wake = socket.try_clone().map_err(unusable)?;
        self.session.on_stop(move || drop(wake.shutdown(Shutdown::Both)));
        let mut reader = ControlReader::new(Box::new(input), "this host".to_owned(), "");
        reader.authenticated();
        Ok(reader)
    }
}
