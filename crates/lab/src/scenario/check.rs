//! Checks of settings beyond their types.

use crate::model::path::{MAX_RTT, too_long};
use crate::model::settings::{MIXED_SIZES, RunSettings, Settings};
use crate::model::units::{ParseResult, format_time};
use crate::tools;
use crate::tools::fields::Field;
use std::time::Duration;

/// Largest number of connections of all senders, and so of senders. (chosen: the receiver's ports
/// are counted up with them, and there are 65 533 addresses)
const MAX_CONNECTIONS: usize = 10_000;

/// Limits of the recording interval. (chosen: shorter ones make huge files, longer ones hide short
/// runs)
const MIN_INTERVAL: Duration = Duration::from_millis(1);

const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// Checks constraints across fields, and fills in defaults from `[run]`.
pub(crate) fn check(settings: &mut Settings) -> ParseResult<()> {
    let path = settings.path_config().map_err(|e| e.to_string())?;
    let rtt = path.rtt().saturating_add(settings.senders.longest_delay());
    if rtt > MAX_RTT {
        return Err(too_long(rtt).to_string());
    }
    let long = rtt.saturating_mul(settings.run.rtts);
    if long > settings.run.duration {
        // Whole seconds, which all tools take.
        settings.run.duration = Duration::from_secs(long.as_secs_f64().ceil() as u64);
    }
    if settings.senders.rate.is_some() && path.first_hop.is_some() {
        let text = "senders.rate and path.first-hop both describe the access link: leave out one";
        return Err(text.to_owned());
    }
    if settings.contenders.is_empty() {
        return Err("there is no contender".to_owned());
    }
    for contender in &mut settings.contenders {
        let tool = tools::find(&contender.tool).map_err(|e| e.to_string())?;
        let takes = |field| tool.supports.contains(&field);
        let streams = settings.run.streams.filter(|_| takes(Field::Streams));
        contender.streams = contender.streams.or(streams);
        contender.window =
            contender.window.or(settings.run.window.filter(|_| takes(Field::Window)));
        contender.cpu = contender.cpu.or(settings.run.cpu.filter(|_| takes(Field::Cpu)));
        if contender.name.is_empty() {
            contender.name.clone_from(&contender.tool);
        }
    }
    let names = settings.contenders.iter().map(|contender| &contender.name);
    let mut names: Vec<&String> = names.collect();
    names.sort();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("two contenders have the name {:?}: set different names", twice[0]));
    }
    check_counts(settings)?;
    settings.contenders.iter().try_for_each(|contender| tools::check(settings, contender))
}

/// Checks the recording interval.
fn check_interval(run: &RunSettings) -> ParseResult<()> {
    let (record, time) = (format_time(run.interval), format_time(run.duration));
    if !(MIN_INTERVAL..=MAX_INTERVAL).contains(&run.interval) {
        let (least, most) = (format_time(MIN_INTERVAL), format_time(MAX_INTERVAL));
        return Err(format!("run.interval is {record}: {least} to {most}"));
    }
    if run.interval >= run.duration {
        return Err(format!(
            "run.interval is {record}, and must be shorter than run.duration, {time}"
        ));
    }
    Ok(())
}

/// Checks counts and times for zeros and limits.
fn check_counts(settings: &Settings) -> ParseResult<()> {
    let (run, senders) = (&settings.run, &settings.senders);
    let mut zeros = vec![
        ("run.repetitions", run.repetitions == 0),
        ("run.duration", run.duration.is_zero()),
        ("run.timeout", run.timeout.is_zero()),
        ("senders.count", senders.count == 0),
        ("senders.rate", senders.rate.is_some_and(|rate| rate.bits_per_sec() == 0)),
        ("data.files", settings.data.files == 0),
        ("data.size", settings.data.size.0 == 0),
    ];
    for cross in &settings.cross_tcp {
        zeros.push(("cross-tcp.flows", cross.flows == 0));
        zeros.push(("cross-tcp.window", cross.window.is_some_and(|window| window.0 == 0)));
    }
    if let Some((name, _)) = zeros.iter().find(|(_, is_zero)| *is_zero) {
        return Err(format!("{name} must be above zero"));
    }
    if settings.data.mixed && settings.data.files < MIXED_SIZES {
        let files = settings.data.files;
        return Err(format!(
            "data.mixed needs at least {MIXED_SIZES} files, but data.files is {files}"
        ));
    }
    check_interval(run)?;
    for one in &settings.contenders {
        let is_load = one.load().is_finite() && one.load() > 0.0;
        let zeros = [
            ("load", !is_load),
            ("streams", one.streams == Some(0)),
            ("rounds", one.rounds() == 0),
            ("block", one.block(1).0 == 0),
            ("each sender's part of the total", one.block(senders.count).0 == 0),
            ("window", one.window.is_some_and(|window| window.0 == 0)),
            ("receive-buffer", one.receive_buffer.is_some_and(|buffer| buffer.0 == 0)),
        ];
        if let Some((field, _)) = zeros.iter().find(|(_, is_zero)| *is_zero) {
            return Err(format!("contender {:?}: {field} must be above zero", one.name));
        }
        let connections = senders.count.saturating_mul(one.streams.unwrap_or(1));
        if connections > MAX_CONNECTIONS {
            let text = format!(
                "{connections} connections of all senders exceed the limit of {MAX_CONNECTIONS}"
            );
            return Err(format!("contender {:?}: {text}", one.name));
        }
    }
    let flows = settings.cross_tcp.iter().fold(0usize, |sum, kind| sum.saturating_add(kind.flows));
    match flows > MAX_CONNECTIONS {
        true => Err(format!("{flows} flows of cross-tcp exceed the limit of {MAX_CONNECTIONS}")),
        false => Ok(()),
    }
}
