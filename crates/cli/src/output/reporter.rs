//! Carries events from the threads of a transfer to the one thread that shows them.

use super::progress::DRAW_HZ;
use super::quiet::Quiet;
use super::{Ending, Output, Render, end};
use crate::exit::Exit;
use bankfull::{Error, Event, EventSink, GatherSink, Progress, Round, Summary};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Events that may wait to be shown. Where the output is slower than the transfer for longer than
/// that, the transfer waits: memory stays bounded and nothing is left out. (ours)
const QUEUE_MAX: usize = 1024;

const TICK: Duration = Duration::from_millis(1000 / DRAW_HZ as u64);

enum Message {
    Event(Box<Event>),
    SourceEvent(usize, Box<Event>),
    SourceDone(usize, Box<Result<Summary, Error>>),
    Round(Round),
    Stopping,
    Finish,
}

/// The latest progress: of the one transfer, or of each source by its number.
#[derive(Debug, Default)]
struct Latest {
    one: Option<Progress>,
    sources: Vec<Option<Progress>>,
}

/// Takes events and has them shown on a thread of its own.
pub(crate) struct Reporter {
    queue: SyncSender<Message>,
    latest: Arc<Mutex<Latest>>,
    wants_settled: bool,
    thread: JoinHandle<Option<Box<dyn Render>>>,
}

impl Reporter {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there is none: how the program ends then, which was shown.
    pub(crate) fn start(render: Box<dyn Render>) -> Result<Self, Exit> {
        let (queue, waiting) = sync_channel(QUEUE_MAX);
        let latest = Arc::<Mutex<Latest>>::default();
        let wants_settled = render.wants_settled();
        // Handed over once there is a thread, so that it can be used where there is none.
        let (give, given) = sync_channel::<Box<dyn Render>>(1);
        let work = {
            let latest = Arc::clone(&latest);
            move || given.recv().map(|render| show(render, &waiting, &latest)).ok()
        };
        match thread::Builder::new().spawn(work) {
            Ok(thread) => {
                let _ = give.send(render);
                Ok(Self { queue, latest, wants_settled, thread })
            }
            Err(e) => Err(end(render, &Ending::Failed(&Error::thread_start(&e)))),
        }
    }

    /// Shows one line worth knowing.
    pub(crate) fn notice(&self, message: String) {
        EventSink::event(self, Event::Warning { message });
    }

    /// Shows a round of all sources that is over.
    pub(crate) fn round(&self, round: Round) {
        self.send(Message::Round(round));
    }

    /// What a signal handler calls to have it shown that we are stopping. Never waits.
    pub(crate) fn stopping(&self) -> impl Fn() + Send + 'static {
        let queue = self.queue.clone();
        move || {
            // A full queue is no reason to keep the signal waiting.
            let _ = queue.try_send(Message::Stopping);
        }
    }

    /// Waits until all is shown and gives back what showed it.
    pub(crate) fn finish(self) -> Box<dyn Render> {
        self.send(Message::Finish);
        match self.thread.join() {
            // There is one always: it was handed over when the thread began.
            Ok(render) => render.unwrap_or_else(|| Box::new(Quiet::new(Output::standard()))),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Whether an event that is no progress is shown.
    fn is_wanted(&self, event: &Event) -> bool {
        match event {
            Event::Completed { .. } => self.wants_settled,
            Event::Sample(_) => false,
            _ => true,
        }
    }

    fn send(&self, message: Message) {
        // The other end is gone only after `finish`, or after a panic that `finish` passes on.
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
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread: shows messages as they come, and the latest progress at every tick.
fn show(
    mut render: Box<dyn Render>,
    waiting: &Receiver<Message>,
    latest: &Mutex<Latest>,
) -> Box<dyn Render> {
    let start = Instant::now();
    let mut next_tick = TICK;
    loop {
        match waiting.recv_timeout(next_tick.saturating_sub(start.elapsed())) {
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
            next_tick = now + TICK;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::handles::testing::buffers;
    use super::super::json::Json;
    use super::*;

    #[test]
    fn everything_sent_is_shown_before_finish_returns() {
        let (output, out, _) = buffers();
        let reporter = Reporter::start(Box::new(Json::new(output, true))).unwrap();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|n| reporter.notice(format!("{n}"))));
            }
        });
        reporter.finish();
        assert_eq!(out.lines().len(), 2000);
    }

    #[test]
    fn progress_is_shown_by_the_ticker_and_not_by_the_event() {
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
