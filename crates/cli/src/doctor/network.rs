//! Checks of buffers, congestion controls and settings of TCP.

use super::Finding;
use super::host::Host;
use bankfull::{Bytes, Rate, RememberedPath, max_inflight};
use std::time::Duration;

/// RTT at which a limit is explained without an earlier copy. (typical within a continent)
const EXAMPLE_RTT: Duration = Duration::from_millis(50);

/// Granularity of suggested sizes. (chosen: readable numbers)
const SIZE_STEP: u64 = 1 << 20;

/// UDP buffer that takes the bursts of QUIC on common paths. (chosen: 50 ms at 1 Gbit/s)
const USUAL_UDP_BUFFER: u64 = 6 << 20;

/// Largest useful maximum of tcp_rmem, in bytes: windows are half of it. (64 MiB by bankfull's
/// window scale)
const MAX_USEFUL_BUFFER: u64 = 128 << 20;

/// Largest window without window scaling, in bytes. (RFC 7323 §2)
const MAX_UNSCALED_WINDOW: u64 = 65_535;

/// Returns the path of one direction with the largest BDP.
fn largest(paths: &[RememberedPath], is_outgoing: bool) -> Option<&RememberedPath> {
    let of_direction = paths.iter().filter(|path| path.is_outgoing == is_outgoing);
    of_direction.max_by_key(|path| path.bdp().0)
}

fn described(path: &RememberedPath) -> String {
    let way = if path.is_outgoing { "to" } else { "from" };
    format!("the path {way} {} ({}, {} ms)", path.host, path.rate, path.rtt.as_millis())
}

/// TCP buffers against the paths of earlier copies.
pub(super) fn buffers(host: &Host, paths: &[RememberedPath]) -> Vec<Finding> {
    if !host.is_own() {
        return Vec::new();
    }
    let sides = [(false, "net.ipv4.tcp_rmem"), (true, "net.ipv4.tcp_wmem")];
    sides
        .into_iter()
        .map(|(is_outgoing, name)| {
            let most = max_inflight(is_outgoing);
            let values = host.sysctl(name).unwrap_or_default();
            buffer(name, (most, &values), largest(paths, is_outgoing))
        })
        .collect()
}

/// One TCP buffer: what may be in flight, and the values of its sysctl.
fn buffer(name: &str, (most, values): (Bytes, &str), path: Option<&RememberedPath>) -> Finding {
    let topic = if name.ends_with("rmem") { "TCP receive buffer" } else { "TCP send buffer" };
    if let Some(path) = path.filter(|path| path.bdp().0 > MAX_USEFUL_BUFFER / 2) {
        let (bdp, streams) = (path.bdp(), path.bdp().0.div_ceil(most.0.max(1)));
        let text = format!(
            "a connection can have {most} in flight; {} holds {bdp}: {streams} connections fill it",
            described(path)
        );
        return Finding::good(topic, text);
    }
    let Some(path) = path.filter(|path| path.bdp() > most) else {
        let rate = most.per(EXAMPLE_RTT);
        let millis = EXAMPLE_RTT.as_millis();
        return Finding::good(
            topic,
            format!("a connection can have {most} in flight: {rate} at an RTT of {millis} ms"),
        );
    };
    let (bdp, kept) = (path.bdp(), values.split_whitespace().take(2).collect::<Vec<_>>().join(" "));
    let max = (2 * bdp.0).next_multiple_of(SIZE_STEP);
    let text =
        format!("a connection can have {most} in flight, and {} holds {bdp}", described(path));
    let setting = format!("sysctl -w {name}=\"{kept} {max}\"");
    let streams = bdp.0.div_ceil(most.0.max(1));
    let effect = format!("1 connection fills that path instead of {streams}");
    Finding::problem(topic, text, setting).with_effect(effect)
}

/// UDP buffers, for QUIC.
pub(super) fn datagrams(host: &Host, paths: &[RememberedPath]) -> Option<Finding> {
    let topic = "UDP buffers";
    let names = ["net.core.rmem_max", "net.core.wmem_max"];
    let least = names.iter().filter_map(|name| host.number(name)).min()?;
    let bdp = paths.iter().map(|path| path.bdp().0).max().unwrap_or_default();
    let useful = bdp.max(USUAL_UDP_BUFFER).next_multiple_of(SIZE_STEP);
    if least >= useful {
        return Some(Finding::good(topic, format!("QUIC may buffer {}", Bytes(least))));
    }
    let text = format!("QUIC may buffer {}, which bursts exceed", Bytes(least));
    let setting = names.map(|name| format!("{name}={useful}")).join(" ");
    let finding = Finding::note(topic, text, format!("sysctl -w {setting}"));
    Some(finding.with_effect("fewer packets of --transport quic lost within the hosts"))
}

/// Congestion controls that the tuner may use.
pub(super) fn congestion_controls(host: &Host) -> Option<Finding> {
    let topic = "congestion control";
    let list = |which: &str| {
        let text = host.sysctl(&format!("net.ipv4.tcp_{which}_congestion_control"))?;
        Some(text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    };
    let (available, allowed) = (list("available")?, list("allowed")?);
    let has_bbr = |names: &[String]| names.iter().any(|name| name == "bbr");
    let names = available.join(", ");
    let effect = "shorter queues where the rate varies, as on cellular links";
    if !has_bbr(&available) {
        let text = format!("bbr is missing; there are {names}");
        return Some(Finding::note(topic, text, "modprobe tcp_bbr").with_effect(effect));
    }
    if !has_bbr(&allowed) && host.is_own() && !is_root(host) {
        let text = "bbr is there, but only root may use it";
        let setting = format!(
            "sysctl -w net.ipv4.tcp_allowed_congestion_control=\"{} bbr\"",
            allowed.join(" ")
        );
        return Some(Finding::note(topic, text, setting).with_effect(effect));
    }
    Some(Finding::good(topic, names))
}

/// True if this process may do what root may, by its effective user.
fn is_root(host: &Host) -> bool {
    let status = host.read("proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    line.and_then(|line| line.split_whitespace().nth(1)) == Some("0")
}

/// Settings of TCP that slow copies down.
pub(super) fn protocol(host: &Host, paths: &[RememberedPath]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut trap = |(name, good): (&str, u64), text: String, effect: String| {
        // A switch may also be on with the value 2.
        let is_good = host.number(name).is_none_or(|value| (value > 0) == (good > 0));
        if !is_good {
            let setting = format!("sysctl -w {name}={good}");
            findings.push(Finding::problem("TCP", text, setting).with_effect(effect));
        }
    };
    let unscaled = Bytes(MAX_UNSCALED_WINDOW);
    let path = paths.iter().max_by_key(|path| path.bdp().0);
    let unscaled_rate = |rtt: Duration| -> Rate { unscaled.per(rtt) };
    let scaled = match path {
        Some(path) => {
            let limit = unscaled_rate(path.rtt);
            format!("more than {limit} for a connection on {}", described(path))
        }
        None => format!("more than {} at 50 ms for a connection", unscaled_rate(EXAMPLE_RTT)),
    };
    trap(("net.ipv4.tcp_window_scaling", 1), "windows are limited to 64 KiB".to_owned(), scaled);
    trap(
        ("net.ipv4.tcp_sack", 1),
        "selective acknowledgements are off".to_owned(),
        "losses are repaired in one round trip".to_owned(),
    );
    trap(
        ("net.ipv4.tcp_timestamps", 1),
        "time stamps are off".to_owned(),
        "round trips are measured with each segment, and queues are seen".to_owned(),
    );
    if let Some(below) = host.number("net.ipv4.tcp_rcvbuf_low_rtt") {
        trap(
            ("net.ipv4.tcp_rcvbuf_low_rtt", 0),
            format!("receive buffers grow slowly below an RTT of {below} us"),
            "short copies within a data centre".to_owned(),
        );
    }
    if findings.is_empty() {
        findings.push(Finding::good("TCP", "window scaling, SACK and time stamps are on"));
    }
    findings
}

/// MTUs of the interfaces, and what happens where a path has a smaller one.
pub(super) fn mtu(host: &Host) -> Option<Finding> {
    let topic = "MTU";
    let names = host.names("sys/class/net").into_iter().filter(|name| name != "lo");
    let mtus: Vec<String> = names
        .filter_map(|name| {
            let mtu = host.read(&format!("sys/class/net/{name}/mtu"))?;
            Some(format!("{name} {mtu}"))
        })
        .collect();
    let probing = host.number("net.ipv4.tcp_mtu_probing")?;
    let text = if mtus.is_empty() { "no interfaces".to_owned() } else { mtus.join(", ") };
    if probing > 0 {
        return Some(Finding::good(topic, text));
    }
    let text = format!("{text}; a path that drops larger packets silently stalls copies");
    let setting = "sysctl -w net.ipv4.tcp_mtu_probing=1";
    let finding = Finding::note(topic, text, setting);
    Some(finding.with_effect("smaller packets after a stall, instead of a failed copy"))
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn buffer_below_a_bdp_names_setting_and_effect() {
        let rate = Rate::from_bits_per_sec(1e9);
        let path = RememberedPath::new(false, "a", rate, Duration::from_millis(80));
        let at =
            |most| buffer("net.ipv4.tcp_rmem", (Bytes(most), "4096 131072 6291456"), Some(&path));
        assert_eq!(at(64 << 20).state, State::Good);
        let small = at(3 << 20);
        assert_eq!(small.state, State::Problem);
        assert_eq!(
            small.setting.as_deref(),
            Some("sysctl -w net.ipv4.tcp_rmem=\"4096 131072 20971520\"")
        );
        assert_eq!(small.effect.as_deref(), Some("1 connection fills that path instead of 4"));
    }
}
