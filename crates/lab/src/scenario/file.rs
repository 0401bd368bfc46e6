//! Reads scenarios: what a file says goes over what its base says, and each value of an axis over
//! both.

use super::path::{RTT_MAX, too_long};
use super::{Axis, Condition, MIXED, Runs, Scenario, Settings};
use crate::error::{LabError, Result};
use crate::text::{Parsed, short_time};
use crate::tools::{self, Field};
use serde::de::DeserializeOwned;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::{Table, Value};

/// How long a chain of bases may be: longer ones go in circles. (ours: the
/// deepest of ours is four)
const BASES_MAX: usize = 8;

/// Most conditions of a scenario. (ours: days of measuring)
const CONDITIONS_MAX: usize = 1000;

/// Most connections of all senders together, and so most senders. (ours: ports of the receiver are
/// counted up with them, and addresses of the lab are 65 533)
const CONNECTIONS_MAX: usize = 10_000;

/// Intervals that the link can record: shorter ones make files that nobody draws, longer ones leave
/// nothing of a short run. (ours)
const RECORD_MIN: Duration = Duration::from_millis(1);
const RECORD_MAX: Duration = Duration::from_secs(1);

/// What a file may say at its top: what belongs to the file, and the fields of [`Settings`].
const TOP_KEYS: [&str; 9] =
    ["title", "extends", "path", "senders", "cross-tcp", "data", "run", "contender", "sweep"];

/// Those of them that are lists of tables.
const LISTS: [&str; 3] = ["contender", "sweep", "cross-tcp"];

/// Reads a scenario.
///
/// # Errors
/// [`LabError::Usage`], with the file's name, when it cannot be read or says something that makes
/// no sense.
pub fn read(file: &Path) -> Result<Scenario> {
    let wrong = |text: String| LabError::Usage(format!("{}: {text}", file.display()));
    let mut table = with_bases(file)?;
    let axes: Vec<Axis> = match table.remove("sweep") {
        Some(value) => of(value).map_err(wrong)?,
        None => Vec::new(),
    };
    let is_twice = |(at, axis): &(usize, &Axis)| axes[..*at].iter().any(|one| one.key == axis.key);
    if let Some((_, axis)) = axes.iter().enumerate().find(is_twice) {
        return Err(wrong(format!("there are two sweeps of {}", axis.key)));
    }
    let first = |axis: &Axis| axis.key.split('.').next().map(str::to_owned).unwrap_or_default();
    if let Some(axis) = axes.iter().find(|axis| LISTS.contains(&first(axis).as_str())) {
        let text =
            format!("the sweep of {}: lists cannot be swept ({})", axis.key, LISTS.join(", "));
        return Err(wrong(text));
    }
    if let Some(axis) = axes.iter().find(|axis| axis.values.is_empty()) {
        return Err(wrong(format!("the sweep of {} has no values", axis.key)));
    }
    let count = axes.iter().fold(1usize, |n, axis| n.saturating_mul(axis.values.len()));
    if count > CONDITIONS_MAX {
        return Err(wrong(format!("{count} conditions: {CONDITIONS_MAX} at most")));
    }
    let conditions = (0..count).map(|number| condition(&table, &axes, number));
    let conditions: Vec<Condition> = conditions.collect::<Parsed<_>>().map_err(wrong)?;
    let title = conditions.first().map(|first| first.settings.title.clone()).unwrap_or_default();
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Scenario { name, title, axes, conditions })
}

/// A file over its base, and that over its own.
fn with_bases(file: &Path) -> Result<Table> {
    let mut merged = Table::new();
    let mut next = Some(file.to_owned());
    let mut asked_by: Option<PathBuf> = None;
    for _ in 0..BASES_MAX {
        let Some(current) = next else { return Ok(merged) };
        let mut table = table_of(&current, asked_by.as_deref())?;
        next = match table.remove("extends") {
            Some(Value::String(base)) => Some(beside(&current, &base)),
            Some(_) => {
                let text = format!("{}: extends takes the name of a file", current.display());
                return Err(LabError::Usage(text));
            }
            None => None,
        };
        asked_by = Some(current);
        merged = over(merged, table);
    }
    Err(LabError::Usage(format!("{}: its bases extend each other", file.display())))
}

/// What a file says; as a base, `asked_by` extends it.
fn table_of(file: &Path, asked_by: Option<&Path>) -> Result<Table> {
    let wrong = |text: &str| LabError::Usage(format!("{}: {text}", file.display()));
    let text = fs::read_to_string(file).map_err(|e| {
        let what = match asked_by {
            None => format!("cannot read {}", file.display()),
            Some(by) => format!(
                "cannot read {}, which {} extends (the name is relative to that file)",
                file.display(),
                by.display()
            ),
        };
        LabError::io(what, e)
    })?;
    let table: Table =
        text.parse().map_err(|e: toml::de::Error| wrong(e.to_string().trim_end()))?;
    if let Some(key) = table.keys().find(|key| !TOP_KEYS.contains(&key.as_str())) {
        return Err(wrong(&format!("unknown field {key:?}: choose {}", TOP_KEYS.join(", "))));
    }
    if let Some(key) = LISTS.iter().find(|key| table.get(**key).is_some_and(Value::is_table)) {
        return Err(wrong(&format!("[{key}] is a list: write [[{key}]]")));
    }
    Ok(table)
}

fn beside(file: &Path, name: &str) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(name)
}

/// `upper`, and of `lower` what `upper` does not say.
fn over(mut upper: Table, lower: Table) -> Table {
    for (key, below) in lower {
        match (upper.remove(&key), below) {
            (Some(Value::Table(above)), Value::Table(below)) => {
                upper.insert(key, Value::Table(over(above, below)));
            }
            (above, below) => {
                upper.insert(key, above.unwrap_or(below));
            }
        }
    }
    upper
}

fn condition(table: &Table, axes: &[Axis], number: usize) -> Parsed<Condition> {
    let mut table = table.clone();
    let mut rest = number;
    let mut values = Vec::new();
    for axis in axes.iter().rev() {
        let value = axis.values[rest % axis.values.len()].clone();
        rest /= axis.values.len();
        values.insert(
            0,
            text_of(&value).ok_or_else(|| {
                format!(
                    "the sweep of {}: lists cannot be swept, only texts, numbers and tables",
                    axis.key
                )
            })?,
        );
        set(&mut table, &axis.key, value)
            .map_err(|inner| format!("the sweep of {}: {inner} is no table", axis.key))?;
    }
    let mut settings: Settings = of(Value::Table(table))?;
    check(&mut settings)?;
    Ok(Condition { values, settings })
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(is) => Some(is.to_string()),
        // Several settings that change together.
        Value::Table(table) => {
            let words: Option<Vec<String>> = table.values().map(text_of).collect();
            Some(words?.join(" "))
        }
        _ => None,
    }
}

/// Sets what a key like `path.buffer` names. Fails with the part of it that is no table.
fn set(table: &mut Table, key: &str, value: Value) -> Parsed<()> {
    let Some((first, rest)) = key.split_once('.') else {
        let value = match (table.remove(key), value) {
            (Some(Value::Table(lower)), Value::Table(upper)) => Value::Table(over(upper, lower)),
            (_, value) => value,
        };
        table.insert(key.to_owned(), value);
        return Ok(());
    };
    let inner = table.entry(first).or_insert_with(|| Value::Table(Table::new()));
    match inner {
        Value::Table(inner) => set(inner, rest, value),
        _ => Err(first.to_owned()),
    }
}

fn of<T: DeserializeOwned>(value: Value) -> Parsed<T> {
    value.try_into().map_err(|e: toml::de::Error| e.to_string().trim_end().to_owned())
}

/// What the types cannot say.
fn check(settings: &mut Settings) -> Parsed<()> {
    let path = settings.path_config().map_err(|e| e.to_string())?;
    let rtt = path.rtt().saturating_add(settings.senders.longest_delay());
    if rtt > RTT_MAX {
        return Err(too_long(rtt).to_string());
    }
    if settings.contenders.is_empty() {
        return Err("it has no contender".to_owned());
    }
    for contender in &mut settings.contenders {
        let tool = tools::find(&contender.tool).map_err(|e| e.to_string())?;
        let takes = |field| tool.takes.contains(&field);
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
        return Err(format!("two contenders are called {:?}: give them a name", twice[0]));
    }
    check_counts(settings)?;
    settings.contenders.iter().try_for_each(|contender| tools::check(settings, contender))
}

/// An interval of which a run has none tells nothing of it.
fn check_record(run: &Runs) -> Parsed<()> {
    let (record, time) = (short_time(run.record), short_time(run.time));
    if !(RECORD_MIN..=RECORD_MAX).contains(&run.record) {
        let (least, most) = (short_time(RECORD_MIN), short_time(RECORD_MAX));
        return Err(format!("run.record is {record}: {least} to {most}"));
    }
    if run.record >= run.time {
        return Err(format!("run.record is {record}, and must be shorter than run.time, {time}"));
    }
    Ok(())
}

/// Counts and times that would mean nothing, or more than there is room for.
fn check_counts(settings: &Settings) -> Parsed<()> {
    let (run, senders) = (&settings.run, &settings.senders);
    let mut zeros = vec![
        ("run.repetitions", run.repetitions == 0),
        ("run.time", run.time.is_zero()),
        ("run.limit", run.limit.is_zero()),
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
    if settings.data.mixed && settings.data.files < MIXED {
        let files = settings.data.files;
        return Err(format!("data.mixed needs {MIXED} files at least, and data.files is {files}"));
    }
    check_record(run)?;
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
        if connections > CONNECTIONS_MAX {
            let text =
                format!("{connections} connections of all senders: {CONNECTIONS_MAX} at most");
            return Err(format!("contender {:?}: {text}", one.name));
        }
    }
    let flows = settings.cross_tcp.iter().fold(0usize, |sum, kind| sum.saturating_add(kind.flows));
    match flows > CONNECTIONS_MAX {
        true => Err(format!("{flows} flows of cross-tcp: {CONNECTIONS_MAX} at most")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Buffer;
    use bankfull_control::Bytes;

    fn read_texts(texts: &[(&str, &str)]) -> Result<Scenario> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in texts {
            fs::write(dir.path().join(name), text).unwrap();
        }
        read(&dir.path().join(texts[0].0))
    }

    const BASE: (&str, &str) = (
        "base.toml",
        "title = 'base'\n[path]\npreset = 'continental'\n[run]\nrepetitions = 2\n\
         [[contender]]\ntool = 'tcp'",
    );

    #[test]
    fn a_file_goes_over_its_base_and_an_axis_over_both() {
        let text = "extends = 'base.toml'\ntitle = 'mine'\n[path]\nrtt = '40ms'\n\
                    [[sweep]]\nkey = 'path.buffer'\nvalues = ['0.5bdp', '1bdp']\n\
                    [[sweep]]\nkey = 'run.seed'\nvalues = [1, 2, 3]";
        let found = read_texts(&[("mine.toml", text), BASE]).unwrap();
        assert_eq!((found.name.as_str(), found.title.as_str()), ("mine", "mine"));
        assert_eq!(found.conditions.len(), 6);
        let last = &found.conditions[5];
        assert_eq!(last.values, ["1bdp", "3"]);
        assert_eq!((last.settings.run.seed, last.settings.run.repetitions), (3, 2));
        assert_eq!(last.settings.path.buffer, Some(Buffer::Bdp(1.0)));
        assert_eq!(last.settings.path_config().unwrap().forward.buffer, Bytes(5_000_000));
        assert_eq!(found.conditions[1].values, ["0.5bdp", "2"]);
    }

    #[test]
    fn a_service_that_makes_no_sense_is_refused_with_the_field_and_the_way_out() {
        for (more, words) in [
            ("[[contender]]\ntool = 'tcp'\ncpu = 0.5", "no use for cpu, a field of datagrams"),
            ("[[contender]]\ntool = 'datagrams'\ncpu = 0.0", "not cpu = 0: write 0.01 to 1"),
            (
                "[run]\ncpu = 50.0\n[[contender]]\ntool = 'datagrams'",
                "not cpu = 50: write 0.01 to 1",
            ),
            (
                "[[contender]]\ntool = 'datagrams'\nmessage = '64KiB'",
                "sends messages of 64 to 65507 bytes, and not message = \"65536B\"",
            ),
            (
                "[[contender]]\ntool = 'datagrams'\nreceive-buffer = '0B'",
                "receive-buffer must be above zero",
            ),
            ("[[contender]]\ntool = 'datagrams'\nreceive-buffer = 'rrda'", "rrda"),
            (
                "[path]\nloss = '1%'\n[[contender]]\ntool = 'datagrams'",
                "counts what its socket discards: leave out path.loss",
            ),
        ] {
            let text = format!("extends = 'base.toml'\n{more}");
            let error = read_texts(&[("mine.toml", &text), BASE]).unwrap_err().to_string();
            assert!(error.contains("mine.toml") && error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_part_of_a_processor_is_that_of_contenders_that_say_none() {
        let text = "extends = 'base.toml'\n[run]\ncpu = 0.25\n\
                    [[contender]]\ntool = 'datagrams'\n\
                    [[contender]]\nname = 'more'\ntool = 'datagrams'\ncpu = 0.5\n\
                    [[contender]]\ntool = 'tcp'";
        let found = read_texts(&[("mine.toml", text), BASE]).unwrap();
        let parts: Vec<_> =
            found.conditions[0].settings.contenders.iter().map(|one| one.cpu).collect();
        assert_eq!(parts, [Some(0.25), Some(0.5), None]);
    }

    #[test]
    fn senders_may_have_lines_of_their_own_delays() {
        let text = "extends = 'base.toml'\n[senders]\ncount = 3\ndelay = ['0ms', '30ms']";
        let found = read_texts(&[("mine.toml", text), BASE]).unwrap();
        let settings = &found.conditions[0].settings;
        let plan = settings.plan(&settings.contenders[0], 1).unwrap();
        let delays: Vec<_> = plan.hosts.iter().map(|(up, _)| up.delay.as_millis()).collect();
        assert_eq!(delays, [0, 30, 0, 0], "three senders and the receiver");
        assert_eq!(plan.rtt.as_millis(), 50, "of the farthest");
        assert_eq!(settings.senders.longest_delay().as_millis(), 30);
    }

    #[test]
    fn flows_beside_keep_the_scenarios_congestion_control_whoever_is_measured() {
        let text = "extends = 'base.toml'\n\
                    [[cross-tcp]]\n[[cross-tcp]]\ncongestion = 'bbr'\n\
                    [[cross-tcp]]\ncongestion = 'any'\n\
                    [[contender]]\ntool = 'tcp'\n[[contender]]\nname = 'other'\ntool = 'tcp'\n\
                    congestion = 'reno'";
        let found = read_texts(&[("mine.toml", text), BASE]).unwrap();
        let settings = &found.conditions[0].settings;
        for (contender, pinned) in settings.contenders.iter().zip(["cubic", "reno"]) {
            let plan = settings.plan(contender, 1).unwrap();
            assert_eq!((plan.congestion.as_deref(), plan.unpinned), (Some(pinned), Some(1)));
            let beside = settings.cross_tcp.iter().map(|cross| settings.cross_congestion(cross));
            assert_eq!(beside.collect::<Vec<_>>(), [Some("cubic"), Some("bbr"), None]);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_file_and_the_thing() {
        let circle = ("mine.toml", "extends = 'mine.toml'");
        let error = read_texts(&[circle]).unwrap_err().to_string();
        assert!(error.contains("mine.toml") && error.contains("extend each other"), "{error}");
        for (more, words) in [
            ("[path]\nspeed = '1gbit'", "speed"),
            ("[path]\nrate = 'fast'", "fast"),
            ("[[contender]]\ntool = 'pigeon'", "pigeon"),
            ("[[contender]]\ntool = 'tcp'\n[[contender]]\ntool = 'tcp'", "called \"tcp\""),
            ("contender = []", "no contender"),
            ("[run]\nrepetitions = 0", "above zero"),
            ("[run]\ntime = '0s'", "above zero"),
            ("[[contender]]\ntool = 'udp'\nload = 0.0", "load must be above zero"),
            ("[[contender]]\ntool = 'tcp'\nstreams = 0", "\"tcp\": streams must be above zero"),
            ("[paths]", "unknown field \"paths\": choose title, extends, path"),
            ("[sweep]\nkey = 'run.seed'", "write [[sweep]]"),
            ("[cross-tcp]\nflows = 1", "write [[cross-tcp]]"),
            ("[[sweep]]\nkey = 'contender.streams'\nvalues = [1]", "lists cannot be swept"),
            ("[[sweep]]\nkey = 'path.rtt'\nvalues = [['1ms']]", "lists cannot be swept, only"),
            ("[senders]\ndelay = []", "one time at least"),
            ("[senders]\ndelay = 20", "or a list of times"),
            ("[senders]\ndelay = '6s'", "a round trip of 6.02 s is too long"),
            ("[path]\nloss = '0.1'", "0.1% or 10%"),
            ("[[sweep]]\nkey = 'path.rtt'\nvalues = []", "no values"),
            ("[[sweep]]\nkey = 'title.x'\nvalues = [1]", "title.x: title is no table"),
            ("[[sweep]]\nkey = 'path.rtt.x'\nvalues = [1]\n[path]\nrtt = '1ms'", "path.rtt.x: rtt"),
            (
                "[[sweep]]\nkey = 'run.seed'\nvalues = [1]\n[[sweep]]\nkey = 'run.seed'\nvalues = [2]",
                "two sweeps of run.seed",
            ),
            ("[run]\nlimit = '0s'", "run.limit must be above zero"),
            ("[run]\nrecord = '0s'", "run.record is 0 us: 1 ms to 1 s"),
            ("[run]\nrecord = '10s'", "run.record is 10 s: 1 ms to 1 s"),
            ("[run]\nrecord = '500ms'\ntime = '500ms'", "must be shorter than run.time, 500 ms"),
            ("[data]\nsize = '0B'", "data.size must be above zero"),
            ("[data]\nfiles = 7\nmixed = true", "data.mixed needs 8 files at least"),
            ("[senders]\ncount = 70000", "70000 connections"),
            ("[[cross-tcp]]\nflows = 1\nwindow = '0B'", "cross-tcp.window"),
            (
                "[[contender]]\ntool = 'scp'\nstreams = 4",
                "the tool scp has no use for streams, a field of bankfull, iperf3, nuttcp, gridftp, aria2, tcp, model, ns3",
            ),
            ("[[contender]]\ntool = 'iperf3'\nload = 1.0", "no use for load, a field of udp"),
            ("[[contender]]\ntool = 'tcp'\nrounds = 3", "no use for rounds, a field of incast"),
            ("[[contender]]\ntool = 'tcp'\nblock = '1kB'", "no use for block"),
            (
                "[[contender]]\ntool = 'incast'\ntotal = '2MB'\nblock = '1kB'",
                "a block of each or a total of all",
            ),
            (
                "[senders]\ncount = 3\n[[contender]]\ntool = 'incast'\ntotal = '2B'",
                "part of the total must be above zero",
            ),
            ("[[contender]]\ntool = 'tcp'\nflags = ['-x']", "no use for flags"),
            ("[[contender]]\ntool = 'udp'\ncongestion = 'bbr'", "no use for congestion"),
            ("[run]\ntime = '1.5s'\n[[contender]]\ntool = 'iperf3'", "iperf3 takes whole seconds"),
            ("[data]\nfiles = 2\n[[contender]]\ntool = 'udt'", "udt moves one file"),
            ("[[contender]]\ntool = 'model'\ncongestion = 'bbr'", "model knows cubic and reno"),
        ] {
            let text = format!("extends = 'base.toml'\n{more}");
            let error = read_texts(&[("mine.toml", &text), BASE]).unwrap_err().to_string();
            assert!(error.contains("mine.toml") && error.contains(words), "{error}");
        }
        let gone = ("mine.toml", "extends = 'gone.toml'");
        let error = read_texts(&[gone]).unwrap_err().to_string();
        assert!(error.contains("gone.toml, which") && error.contains("mine.toml"), "{error}");
        let missing = read(Path::new("nowhere.toml")).unwrap_err().to_string();
        assert!(missing.contains("nowhere.toml"), "{missing}");
    }
}
