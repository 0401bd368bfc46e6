//! What the administrator of a host could set, so that fewer connections would fill a path.

use super::room::Side;
use bankfull_control::Bytes;

/// What is asked for is a multiple of this. (ours: for people to read)
const STEP: u64 = 1 << 20;

/// How to have one connection carry as much as the path holds, where the windows that the two hosts
/// allow it are smaller: `max_inflight_bytes` is what they allow at the receiver, which is this host, and at the
/// sender. `None` where they are large enough, or where nobody knows.
pub(super) fn larger_windows(holds: Bytes, max_inflight_bytes: [Bytes; 2]) -> Option<String> {
    let [receiver, sender] = max_inflight_bytes;
    let hosts = [
        (Side::Receive, receiver, "the receiving host", Side::Receive.setting()),
        // Of the sender's we know the most alone; the other two are to stay as they are.
        (Side::Send, sender, "the sending host", None),
    ];
    let small = hosts.into_iter().filter(|(_, max_inflight_bytes, ..)| *max_inflight_bytes < holds);
    let settings: Vec<String> = small
        .map(|(side, _, host, now)| {
            let (most, name) = ((holds.0 * 2).next_multiple_of(STEP), side.sysctl());
            let kept = now.map_or_else(
                || format!("$(sysctl -n {name} | awk '{{print $1, $2}}')"),
                |[least, first, _]| format!("{least} {first}"),
            );
            format!("sysctl -w {name}=\"{kept} {most}\" on {host}")
        })
        .collect();
    let least = receiver.min(sender);
    (!settings.is_empty()).then(|| {
        format!(
            "the path holds {holds}, and a connection may have {least} in flight: that takes {} of \
             them, or, as root, {}",
            holds.0.div_ceil(least.0.max(1)),
            settings.join(", and ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_that_allow_too_little_are_named_with_what_would_do() {
        let told = |holds, receiver, sender| {
            larger_windows(Bytes::mib(holds), [Bytes::mib(receiver), Bytes::mib(sender)])
        };
        assert_eq!(told(2, 3, 2), None);
        let sender = told(12, 64, 2).unwrap();
        let kept = "net.ipv4.tcp_wmem=\"$(sysctl -n net.ipv4.tcp_wmem | awk '{print $1, $2}') ";
        assert!(sender.contains(&format!("{kept}25165824\" on the sending")), "{sender}");
        assert!(!sender.contains("tcp_rmem"), "{sender}");
        let both = told(12, 3, 2).unwrap();
        assert!(both.contains("tcp_rmem=\"") && both.contains(" on the receiving"), "{both}");
        assert!(both.contains(", and sysctl -w net.ipv4.tcp_wmem"), "{both}");
        assert!(both.contains("may have 2.0 MiB in flight: that takes 6 of them"), "{both}");
    }
}
