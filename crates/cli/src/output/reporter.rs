//! Passes events from the threads of a transfer to the thread that shows them.

use super::progress::DRAW_HZ;
use super::quiet::Quiet;
use super::{Ending, Output, Render, end};
use crate::exit::Exit;
use bankfull::{Error, Event, EventSink, GatherSink, Progress, Round, Summary};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Maximum number of queued events. If the output is slower than the transfer, the transfer waits:
/// memory stays bounded and no event is lost. (chosen: absorbs bursts)
const MAX_QUEUED_EVENTS: usize = 1024;

const TICK_INTERVAL: Duration = Duration::from_millis(1000 / DRAW_HZ as u64);

enum Message {
    Event(Box<Event>),
    SourceEvent(usize, Box<Event>),
    SourceDone(usize, Box<Result<Summary, Error>>),
    Round(Round),
    Stopping,
    Finish,
}

/// Latest progress: of the only transfer, or of each source by its number.
#[derive(Debug, Default)]
struct Latest {
    one: Option<Progress>,
    sources: Vec<Option<Progress>>,
}

/// Sink of events, shown on a separate thread.
pub(crate) struct Reporter {
    queue: SyncSender<Message>,
    latest: Arc<Mutex<Latest>>,
    wants_completed: bool,
    thread: JoinHandle<Option<Box<dyn Render>>>,
}

impl Reporter {
    /// Starts the thread.
    ///
    /// # Errors
    /// The exit code if no thread can be started; the error has been shown.
    pub(crate) fn start(render: Box<dyn Render>) -> Result<Self, Exit> {
        let (queue, queued) = sync_channel(MAX_QUEUED_EVENTS);
        let latest = Arc::<Mutex<Latest>>::default();
        let wants_completed = render.wants_completed();
        // Handed over after the thread has started, so that it remains usable without one.
        let (handover, receiver) = sync_channel::<Box<dyn Render>>(1);
        let work = {
            let latest = Arc::clone(&latest);
            move || receiver.recv().map(|render| show(render, &queued, &latest)).ok()
        };
        match thread::Builder::new().spawn(work) {
            Ok(thread) => {
                let _ = handover.send(render);
                Ok(Self { queue, latest, wants_completed, thread })
            }
            Err(e) => Err(end(render, &Ending::Failed(&Error::thread_start(&e)))),
        }
    }

    /// Shows a warning.
    pub(crate) fn warn(&self, message: String) {
        EventSink::event(self, Event::Warning { message });
    }

    /// Shows a completed round of all sources.
    pub(crate) fn round(&self, round: Round) {
        self.send(Message::Round(round));
    }

    /// Returns a function for signal handlers that shows that the command is stopping. It never
    /// blocks.
    pub(crate) fn stopping(&self) -> impl Fn() + Send + 'static {
        let queue = self.queue.clone();
        move || {
            // The signal handler must not wait for a full queue.
            let _ = queue.try_send(Message::Stopping);
        }
    }

    /// Returns a function for other threads that shows a warning.
    pub(crate) fn warner(&self) -> impl Fn(String) + Send + 'static {
        let queue = self.queue.clone();
        move |message| {
            // After the end of the output, no warning is of use.
            let _ = queue.send(Message::Event(Box::new(Event::Warning { message })));
        }
    }

    /// Waits until everything is shown, and returns the output format.
    pub(crate) fn finish(self) -> Box<dyn Render> {
        self.send(Message::Finish);
        match self.thread.join() {
            // Always `Some`: it was handed over when the thread started.
            Ok(render) => render.unwrap_or_else(|| Box::new(Quiet::new(Output::standard()))),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// True if an event other than progress is shown.
    fn is_wanted(&self, event: &Event) -> bool {
        match event {
            Event::Completed { .. } => self.wants_completed,
            Event::Sample(_) => false,
            _ => true,
        }
    }

    fn send(&self, message: Message) {
        // The receiver ends only after `finish`, or after a panic that `finish` propagates.
        let _ = self.queue.send(message);
    }
}

impl EventSink for Reporter {
    fn event(&self, event: Event) {
        match event {
            Event::Progress(progress) => lock(&self.latest).one = Some(progress),
            event if self.is_wanted(&event) => self.send(Message::Event(Box::new(event))),
            _ => {}
        }
    }

    fn wants_completed(&self) -> bool {
        self.wants_completed
    }
}

impl GatherSink for Reporter {
    fn event(&self, source: usize, event: Event) {
        match event {
            Event::Progress(progress) => {
                let sources = &mut lock(&self.latest).sources;
                sources.resize(sources.len().max(source + 1), None);
                sources[source] = Some(progress);
            }
            event if self.is_wanted(&event) => {
                self.send(Message::SourceEvent(source, Box::new(event)));
            }
            _ => {}
        }
    }

    fn source_done(&self, source: usize, result: &Result<Summary, Error>) {
        self.send(Message::SourceDone(source, Box::new(result.clone())));
    }

    fn wants_completed(&self) -> bool {
        self.wants_completed
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the thread: shows messages when they are queued, and the latest progress at every tick.
fn show(
    mut render: Box<dyn Render>,
    queued: &Receiver<Message>,
    latest: &Mutex<Latest>,
) -> Box<dyn Render> {
    let start = Instant::now();
    let mut next_tick = TICK_INTERVAL;
    loop {
        match queued.recv_timeout(next_tick.saturating_sub(start.elapsed())) {
            Ok(Message::Event(event)) => render.event(&event),
            Ok(Message::SourceEvent(source, event)) => render.source_event(source, &event),
            Ok(Message::SourceDone(source, result)) => render.source_done(source, &result),
            Ok(Message::Round(round)) => render.round(&round),
            Ok(Message::Stopping) => render.stopping(),
            Ok(Message::Finish) | Err(RecvTimeoutError::Disconnected) => return render,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = start.elapsed();
        if now >= next_tick {
            let Latest { one, sources } = &*lock(latest);
            match one {
                Some(progress) => render.tick(progress, now),
                None => render.tick_sources(sources, now),
            }
            next_tick = now + TICK_INTERVAL;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::handles::testing::buffers;
    use super::super::json::Json;
    use super::*;

    #[test]
    fn finish_waits_until_all_events_are_shown() {
        let (output, out, _) = buffers();
        let reporter = Reporter::start(Box::new(Json::new(output, true))).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|n| reporter.warn(format!("{n}"))));
            }
        });
        reporter.finish();
        assert_eq!(out.lines().len(), 2000);
    }

    #[test]
    fn progress_is_shown_per_tick_not_per_event() {
        let (output, out, _) = buffers();
        let reporter = Reporter::start(Box::new(Json::new(output, false))).unwrap();
        for _ in 0..1000 {
            EventSink::event(&reporter, Event::Progress(Progress::default()));
        }
        while out.text().is_empty() {
            thread::sleep(Duration::from_millis(10));
        }
        reporter.finish();
        assert!(out.lines().len() < 100, "one line per event, not per tick");
    }
}
