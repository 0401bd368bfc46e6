//! Constants of TCP and BBR that several controllers share.

use std::time::Duration;

/// Multiplicative decrease factor β of CUBIC. (RFC 9438 §4.6)
pub const CUBIC_BETA: f64 = 0.7;

/// Smallest window, in segments, of which a loss is repaired without a timeout. (RFC 5681 §3.2;
/// BBR's MinPipeCwnd)
pub(crate) const FAST_RETRANSMIT_SEGMENTS: u64 = 4;

/// Initial window of a connection, in segments. (RFC 6928)
pub(crate) const INITIAL_WINDOW_SEGMENTS: u64 = 10;

/// Growth of the delivery rate per round below which a path is full; the first probe tries it.
/// (BBR's StartupFullBwThresh, and its pacing gain of `Up`)
pub(crate) const BW_GROWTH: f64 = 1.25;

/// Smallest retransmission timeout. (TCP_RTO_MIN, include/net/tcp.h)
pub(crate) const MIN_RTO: Duration = Duration::from_millis(200);

/// RTTs, and least time, in which a loss is repaired. (measured, docs/algorithms/delay.md: with 5
/// RTTs and 0.5 s, more regret beside BBR and at random loss)
pub(crate) const REPAIR_TIME: (u32, Duration) = (4, Duration::from_millis(300));

/// Lifetime of a base delay. (BBR's MinRTTFilterLen; bbr_min_rtt_win_sec, net/ipv4/tcp_bbr.c)
pub(crate) const MIN_RTT_FILTER_LEN: Duration = Duration::from_secs(10);

/// Loss that BBR tolerates. (BBR's LossThresh, draft-ietf-ccwg-bbr)
pub(crate) const LOSS_THRESH: f64 = 0.02;

/// Largest super-packet that TCP hands to the device, in bytes. (GSO_LEGACY_MAX_SIZE,
/// include/linux/netdevice.h)
pub(crate) const TSO_MAX_BYTES: u64 = 1 << 16;
