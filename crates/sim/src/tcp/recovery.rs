//! Progress of loss recovery: its rate, and the evidence that it was unnecessary.

use super::window::Window;

/// State of loss recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// No loss.
    Open,
    /// Reduction after a mark (CWR).
    Marked,
    /// Fast recovery.
    Recovery,
    /// Recovery after a retransmission timeout.
    Loss,
}

/// Progress of loss recovery.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recovery {
    pub(super) state: State,
    /// The recovery ends when this byte is acknowledged.
    pub(super) end: u64,
    pub(super) reduction: RateReduction,
    /// The latest reduction, if it may still be undone.
    pub(super) undo: Option<Undo>,
}

impl Recovery {
    pub(super) fn new() -> Self {
        Self { state: State::Open, end: 0, reduction: RateReduction::default(), undo: None }
    }

    /// Records a retransmission.
    pub(super) fn on_retransmission(&mut self, number: u64, count: u64) {
        if let Some(undo) = &mut self.undo {
            undo.first_retransmission.get_or_insert(number);
            undo.needless.get_or_insert((0, 0)).1 += count;
        }
    }

    /// Records segments up to the byte `end` that arrived twice.
    pub(super) fn on_duplicates(&mut self, end: u64, count: u64) {
        if let Some(undo) = self.undo.as_mut().filter(|undo| end > undo.start)
            && let Some(needless) = &mut undo.needless
        {
            needless.0 += count;
        }
    }

    /// Returns the window before the reduction if its retransmissions were all needless.
    ///
    /// They all arrived twice (DSACK, tcp_try_undo_dsack, net/ipv4/tcp_input.c), or the left edge
    /// advanced by what was sent before them (Eifel, RFC 3522; tcp_packet_delayed). The latter
    /// counts during a recovery if no retransmission is in flight (tcp_try_undo_partial).
    pub(super) fn spurious(&self, echo: Option<u64>, has_retransmissions: bool) -> Option<Window> {
        let undo = self.undo.as_ref()?;
        let are_duplicates = undo.needless.is_some_and(|(arrived, sent)| arrived >= sent);
        let is_delayed =
            echo.is_some_and(|echo| undo.first_retransmission.is_none_or(|first| echo < first));
        let counts = match self.state {
            State::Open | State::Marked => false,
            State::Recovery => !has_retransmissions,
            State::Loss => true,
        };
        (are_duplicates || (is_delayed && counts)).then_some(undo.window)
    }
}

/// State before a reduction, and what is known of its retransmissions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Undo {
    window: Window,
    /// First unacknowledged byte at the reduction.
    start: u64,
    /// Number of the first retransmission.
    first_retransmission: Option<u64>,
    /// Retransmitted segments: those that arrived twice, and all; `None` before the first.
    needless: Option<(u64, u64)>,
}

impl Undo {
    pub(super) fn new(window: Window, start: u64) -> Option<Self> {
        Some(Self { window, start, first_retransmission: None, needless: None })
    }
}

/// Proportional rate reduction (RFC 6937 §3).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RateReduction {
    pub(super) prior_window: u64,
    pub(super) delivered: u64,
    pub(super) sent: u64,
}

impl RateReduction {
    /// Returns the segments that may be sent (RFC 6937 §3.1, with the slow start reduction bound).
    pub(super) fn may_send(
        &mut self,
        pipe: u64,
        threshold: u64,
        delivered: u64,
        is_clean: bool,
    ) -> u64 {
        self.delivered += delivered;
        let may_send = if pipe > threshold {
            let prior = self.prior_window.max(1);
            (self.delivered * threshold).div_ceil(prior).saturating_sub(self.sent)
        } else {
            let limit = self.delivered.saturating_sub(self.sent).max(delivered);
            (limit + u64::from(is_clean)).min(threshold - pipe)
        };
        // The first retransmission leaves at once (tcp_cwnd_reduction, net/ipv4/tcp_input.c).
        may_send.max(u64::from(self.sent == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recovery(state: State) -> Recovery {
        let window = Window { size: 100.0, threshold: 80.0 };
        Recovery { state, undo: Undo::new(window, 1000), ..Recovery::new() }
    }

    #[test]
    fn reduction_is_spurious_if_all_retransmissions_are_duplicates() {
        let mut recovery = recovery(State::Open);
        assert!(recovery.spurious(Some(5), false).is_none(), "the evidence comes too late");
        recovery.on_retransmission(40, 2);
        recovery.on_duplicates(1000, 2);
        recovery.on_duplicates(2000, 1);
        assert!(recovery.spurious(None, true).is_none(), "one is from before the reduction");
        recovery.on_duplicates(2000, 1);
        assert_eq!(recovery.spurious(None, true).map(|window| window.size), Some(100.0));
    }

    #[test]
    fn reduction_is_spurious_if_original_fills_left_edge() {
        let mut recovery = recovery(State::Recovery);
        recovery.on_retransmission(40, 2);
        assert!(recovery.spurious(Some(40), false).is_none(), "filled by a retransmission");
        assert!(recovery.spurious(Some(39), true).is_none(), "another one may be needed");
        assert!(recovery.spurious(Some(39), false).is_some());
        recovery.state = State::Loss;
        assert!(recovery.spurious(Some(39), true).is_some());
    }
}
