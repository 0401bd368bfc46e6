//! Limits that TCP buffers set on the data in flight, and advice to enlarge them. With larger
//! buffers fewer streams fill a path.

use super::socket_buffers::BufferSide;
use bankfull_control::Bytes;

/// Granularity of suggested buffer sizes. (chosen: readable numbers)
const SUGGESTED_BUFFER_STEP: u64 = 1 << 20;

/// Most data that a stream can have in flight, next to the path's BDP.
pub(crate) struct InflightLimits {
    /// BDP of the path; zero if unknown.
    pub(crate) bdp: Bytes,
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
    pub(crate) fn advice(&self, streams: u32) -> Option<String> {
        let sender = self.sender.filter(|_| self.min_streams() > streams)?;
        suggest_larger_buffers(self.bdp, [self.receiver, sender])
    }
}

/// Returns the `sysctl` commands that let one stream fill a path of this BDP.
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
    let small = hosts.into_iter().filter(|(_, max_inflight, ..)| *max_inflight < bdp);
    let settings: Vec<String> = small
        .map(|(side, _, host, current)| {
            let (max, name) = ((bdp.0 * 2).next_multiple_of(SUGGESTED_BUFFER_STEP), side.sysctl());
            let kept = current.map_or_else(
                || format!("$(sysctl -n {name} | awk '{{print $1, $2}}')"),
                |[min, default, _]| format!("{min} {default}"),
            );
            format!("sysctl -w {name}=\"{kept} {max}\" on {host}")
        })
        .collect();
    let smaller = receiver.min(sender);
    (!settings.is_empty()).then(|| {
        format!(
            "the path's bandwidth-delay product is {bdp}, but a connection may have only {smaller} \
             in flight: use {} connections, or run as root {}",
            bdp.0.div_ceil(smaller.0.max(1)),
            settings.join(", and ")
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
    }
}
