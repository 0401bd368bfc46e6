//! Limits that TCP buffers set on the data in flight, and advice to enlarge them. With larger
//! buffers fewer streams fill a path.

use super::socket_buffers::{BufferSide, MAX_SOCKET_BUFFER};
use bankfull_control::Bytes;
use std::fs;
use std::time::Duration;

/// Granularity of suggested buffer sizes. (chosen: readable numbers)
const SUGGESTED_BUFFER_STEP: u64 = 1 << 20;

/// Sysctl with the RTT below which receive buffers grow slowly, in microseconds. (Linux 6.19,
/// ip-sysctl.rst)
const SLOW_GROWTH_SYSCTL: &str = "net.ipv4.tcp_rcvbuf_low_rtt";

/// Most data that a stream can have in flight, next to the path's BDP.
pub(crate) struct InflightLimits {
    /// BDP of the path; zero if unknown.
    pub(crate) bdp: Bytes,
    /// Min RTT of the path.
    pub(crate) min_rtt: Duration,
    /// Limit of the receiver, which is this host.
    pub(crate) receiver: Bytes,
    /// Limit of the sender, if known.
    pub(crate) sender: Option<Bytes>,
}

impl InflightLimits {
    /// Returns the limit of both hosts.
    pub(crate) fn per_stream(&self) -> Bytes {
        self.sender.map_or(self.receiver, |sender| self.receiver.min(sender))
    }

    /// Returns the fewest streams whose windows cover the BDP.
    pub(crate) fn min_streams(&self) -> u32 {
        let count = self.bdp.0.div_ceil(self.per_stream().0.max(1));
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Suggests larger buffers if `streams` streams are too few to cover the BDP.
    ///
    /// Also suggests faster growth of receive buffers that have to grow.
    pub(crate) fn advice(&self, streams: u32, growth: BufferGrowth) -> Option<String> {
        let sender = self.sender.filter(|_| self.min_streams() > streams);
        let larger =
            sender.and_then(|sender| suggest_larger_buffers(self.bdp, [self.receiver, sender]));
        let must_grow = self.bdp.0 > growth.initial.0.saturating_mul(streams.into());
        let growth = growth.slow_below.filter(|_| must_grow || larger.is_some());
        let advice = [larger, suggest_fast_growth(self.min_rtt, growth)];
        let advice = advice.into_iter().flatten().collect::<Vec<_>>().join("; ");
        (!advice.is_empty()).then_some(advice)
    }
}

/// Growth of this host's receive buffers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BufferGrowth {
    /// Size of a new connection's buffer.
    initial: Bytes,
    /// RTT below which buffers grow slowly, if there is one.
    slow_below: Option<Duration>,
}

impl BufferGrowth {
    /// Reads the kernel's settings.
    pub(crate) fn read() -> Self {
        let [_, initial, _] = BufferSide::Receive.sysctl_values().unwrap_or_default();
        let file = format!("/proc/sys/{}", SLOW_GROWTH_SYSCTL.replace('.', "/"));
        let micros = fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
        Self { initial: Bytes(initial), slow_below: micros.map(Duration::from_micros) }
    }
}

/// Returns advice if receive buffers grow slowly on the path.
fn suggest_fast_growth(min_rtt: Duration, slow_below: Option<Duration>) -> Option<String> {
    let slow_below = slow_below.filter(|below| !min_rtt.is_zero() && min_rtt < *below)?;
    Some(format!(
        "receive buffers grow slowly below an RTT of {} us: run as root sysctl -w \
         {SLOW_GROWTH_SYSCTL}=0 on the receiving host",
        slow_below.as_micros()
    ))
}

/// Returns the streams that a path of this BDP needs, and commands for fewer.
///
/// `max_inflight` is what one stream may have in flight at the receiver and at the sender. `None`
/// if both suffice.
fn suggest_larger_buffers(bdp: Bytes, max_inflight: [Bytes; 2]) -> Option<String> {
    let [receiver, sender] = max_inflight;
    let hosts = [
        (BufferSide::Receive, receiver, "the receiving host", BufferSide::Receive.sysctl_values()),
        // Only the maximum of the sender is known; its command keeps the other two values.
        (BufferSide::Send, sender, "the sending host", None),
    ];
    let most = bdp.min(MAX_SOCKET_BUFFER);
    let small = hosts.into_iter().filter(|(_, max_inflight, ..)| *max_inflight < most);
    let settings: Vec<String> = small
        .map(|(side, _, host, current)| {
            let (max, name) = ((most.0 * 2).next_multiple_of(SUGGESTED_BUFFER_STEP), side.sysctl());
            let kept = current.map_or_else(
                || format!("$(sysctl -n {name} | awk '{{print $1, $2}}')"),
                |[min, default, _]| format!("{min} {default}"),
            );
            format!("sysctl -w {name}=\"{kept} {max}\" on {host}")
        })
        .collect();
    let smaller = receiver.min(sender);
    let larger = if settings.is_empty() {
        String::new()
    } else {
        format!(", or run as root {}", settings.join(", and "))
    };
    (smaller < bdp).then(|| {
        format!(
            "the path's bandwidth-delay product is {bdp}, but a connection may have only {smaller} \
             in flight: use {} connections{larger}",
            bdp.0.div_ceil(smaller.0.max(1)),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_each_host_with_too_small_buffers() {
        let advice = |bdp, receiver, sender| {
            suggest_larger_buffers(Bytes::mib(bdp), [Bytes::mib(receiver), Bytes::mib(sender)])
        };
        assert_eq!(advice(2, 3, 2), None);
        let sender = advice(12, 64, 2).unwrap();
        let kept = "net.ipv4.tcp_wmem=\"$(sysctl -n net.ipv4.tcp_wmem | awk '{print $1, $2}') ";
        assert!(sender.contains(&format!("{kept}25165824\" on the sending")), "{sender}");
        assert!(!sender.contains("tcp_rmem"), "{sender}");
        let both = advice(12, 3, 2).unwrap();
        assert!(both.contains("tcp_rmem=\"") && both.contains(" on the receiving"), "{both}");
        assert!(both.contains(", and sysctl -w net.ipv4.tcp_wmem"), "{both}");
        assert!(both.contains("only 2.0 MiB in flight: use 6 connections"), "{both}");
        let most = MAX_SOCKET_BUFFER;
        let long = suggest_larger_buffers(Bytes::mib(200), [most, most]).unwrap();
        assert!(long.ends_with("in flight: use 4 connections"), "{long}");
        let half = suggest_larger_buffers(Bytes::mib(200), [most, Bytes::mib(32)]).unwrap();
        assert!(half.contains(" 134217728\" on the sending"), "{half}");
    }

    #[test]
    fn slow_growth_matters_where_buffers_have_to_grow() {
        let limits = |kib| InflightLimits {
            bdp: Bytes::kib(kib),
            min_rtt: Duration::from_micros(400),
            receiver: MAX_SOCKET_BUFFER,
            sender: Some(MAX_SOCKET_BUFFER),
        };
        let slow_below = Some(Duration::from_millis(1));
        let growth = BufferGrowth { initial: Bytes::kib(128), slow_below };
        assert_eq!(limits(512).advice(4, growth), None, "the initial buffers suffice");
        assert!(limits(513).advice(4, growth).is_some());
        let older = BufferGrowth { slow_below: None, ..growth };
        assert_eq!(limits(513).advice(4, older), None);
    }

    #[test]
    fn slow_growth_is_named_below_its_rtt() {
        let us = Duration::from_micros;
        let advice = |rtt, below| suggest_fast_growth(us(rtt), below);
        assert_eq!(advice(400, None), None, "an older kernel");
        assert_eq!([advice(0, Some(us(1000))), advice(1000, Some(us(1000)))], [None, None]);
        let found = advice(400, Some(us(1000))).unwrap();
        assert!(found.contains("below an RTT of 1000 us: run as root sysctl -w net."), "{found}");
        assert!(found.ends_with("tcp_rcvbuf_low_rtt=0 on the receiving host"), "{found}");
    }
}
