//! Reads scenario files: values of a file override those of its base, and values of an axis
//! override both.

use crate::base::error::{LabError, Result};
use crate::model::settings::Settings;
use crate::model::units::ParseResult;
use crate::scenario::{Axis, Condition, Scenario, check};
use serde::de::DeserializeOwned;
use std::fs;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Longest chain of bases; a longer one is circular. (chosen: the project's longest is four)
const MAX_BASES: usize = 8;

/// Largest number of conditions. (chosen: days of measuring)
const MAX_CONDITIONS: usize = 1000;

/// Hexadecimal digits of a fingerprint. (chosen: 64 bits, far more than there are edits of a file)
const FINGERPRINT_DIGITS: usize = 16;

/// Top-level keys of a file: its own, and the fields of [`Settings`].
const TOP_KEYS: [&str; 9] =
    ["title", "extends", "path", "senders", "cross-tcp", "data", "run", "contender", "sweep"];

/// Keys that are arrays of tables.
const LISTS: [&str; 3] = ["contender", "sweep", "cross-tcp"];

/// Reads a scenario.
///
/// # Errors
/// [`LabError::Io`] or [`LabError::Usage`], with the file's name, if it cannot be read or is
/// invalid.
pub fn read(file: &Path) -> Result<Scenario> {
    let wrong = |text: String| LabError::Usage(format!("{}: {text}", file.display()));
    let mut table = with_bases(file)?;
    let axes: Vec<Axis> = match table.remove("sweep") {
        Some(value) => from_value(value).map_err(wrong)?,
        None => Vec::new(),
    };
    let is_twice = |(at, axis): &(usize, &Axis)| axes[..*at].iter().any(|one| one.key == axis.key);
    if let Some((_, axis)) = axes.iter().enumerate().find(is_twice) {
        return Err(wrong(format!("{} is swept twice", axis.key)));
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
    if count > MAX_CONDITIONS {
        return Err(wrong(format!("{count} conditions exceed the limit of {MAX_CONDITIONS}")));
    }
    let conditions = (0..count).map(|number| condition(&table, &axes, number));
    let conditions: Vec<Condition> = conditions.collect::<ParseResult<_>>().map_err(wrong)?;
    let title = conditions.first().map(|first| first.settings.title.clone()).unwrap_or_default();
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Scenario { name, title, axes, conditions })
}

/// Merges a file with its chain of bases.
fn with_bases(file: &Path) -> Result<Table> {
    let mut merged = Table::new();
    let mut next = Some(file.to_owned());
    let mut extended_by: Option<PathBuf> = None;
    for _ in 0..MAX_BASES {
        let Some(current) = next else { return Ok(merged) };
        let mut table = table_of(&current, extended_by.as_deref())?;
        next = match table.remove("extends") {
            Some(Value::String(base)) => Some(sibling(&current, &base)),
            Some(_) => {
                let text = format!("{}: extends must be the name of a file", current.display());
                return Err(LabError::Usage(text));
            }
            None => None,
        };
        extended_by = Some(current);
        merged = merge(merged, table);
    }
    Err(LabError::Usage(format!("{}: its bases extend each other", file.display())))
}

/// Parses one file; `extended_by` is the file that names it as its base.
fn table_of(file: &Path, extended_by: Option<&Path>) -> Result<Table> {
    let wrong = |text: &str| LabError::Usage(format!("{}: {text}", file.display()));
    let text = fs::read_to_string(file).map_err(|e| {
        let what = match extended_by {
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

fn sibling(file: &Path, name: &str) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(name)
}

/// Merges tables; values of `upper` win.
fn merge(mut upper: Table, lower: Table) -> Table {
    for (key, below) in lower {
        match (upper.remove(&key), below) {
            (Some(Value::Table(above)), Value::Table(below)) => {
                upper.insert(key, Value::Table(merge(above, below)));
            }
            (above, below) => {
                upper.insert(key, above.unwrap_or(below));
            }
        }
    }
    upper
}

fn condition(table: &Table, axes: &[Axis], number: usize) -> ParseResult<Condition> {
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
                    "the sweep of {}: only texts, numbers, lists and tables can be swept",
                    axis.key
                )
            })?,
        );
        set(&mut table, &axis.key, value)
            .map_err(|inner| format!("the sweep of {}: {inner} is not a table", axis.key))?;
    }
    let mut settings: Settings = from_value(Value::Table(table.clone()))?;
    check::check(&mut settings)?;
    let names = settings.contenders.iter().map(|one| one.name.clone());
    let definitions = names.zip(fingerprints(table)?).collect();
    Ok(Condition { values, settings, definitions })
}

/// Fingerprints of what defines the runs of each contender, in the order of the file.
fn fingerprints(mut table: Table) -> ParseResult<Vec<String>> {
    table.remove("title");
    if let Some(Value::Table(run)) = table.get_mut("run") {
        run.remove("repetitions");
    }
    let contenders = table.remove("contender");
    let contenders = contenders.as_ref().and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let fingerprint = |contender| {
        let text = serde_json::to_string(&(&table, contender)).map_err(|e| e.to_string())?;
        let mut hash = blake3::hash(text.as_bytes()).to_hex().to_string();
        hash.truncate(FINGERPRINT_DIGITS);
        Ok(hash)
    };
    contenders.iter().map(fingerprint).collect()
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(is) => Some(is.to_string()),
        // Settings that change together.
        Value::Table(table) => {
            if let Some(Value::String(name)) = table.get("name") {
                return Some(name.clone());
            }
            let words: Option<Vec<String>> = table.values().map(text_of).collect();
            Some(words?.join(" "))
        }
        Value::Array(words) => {
            let words: Option<Vec<String>> = words.iter().map(text_of).collect();
            Some(words?.join(" "))
        }
        Value::Datetime(_) => None,
    }
}

/// Sets the value of a key such as `path.buffer`. Fails with the part of the key that is not a
/// table.
fn set(table: &mut Table, key: &str, value: Value) -> ParseResult<()> {
    let Some((first, rest)) = key.split_once('.') else {
        let value = match (table.remove(key), value) {
            (Some(Value::Table(lower)), Value::Table(upper)) => Value::Table(merge(upper, lower)),
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

fn from_value<T: DeserializeOwned>(value: Value) -> ParseResult<T> {
    value.try_into().map_err(|e: toml::de::Error| e.to_string().trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::units::Buffer;
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
    fn file_overrides_base_and_axis_overrides_both() {
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
    fn definitions_follow_what_a_run_depends_on() {
        let text = "title = 'x'\n# first\n[path]\nrate = '1mbit'\nrtt = '20ms'\n\
                    [run]\nduration = '8s'\nrepetitions = 3\n\
                    [[contender]]\ntool = 'tcp'\n[[contender]]\nname = 'four'\ntool = 'tcp'\n\
                    streams = 4";
        let of = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            let mut found = read_texts(&[("mine.toml", &text.replace(from, to))]).unwrap();
            found.conditions.remove(0).definitions
        };
        let (plain, names) = (of("", ""), ["tcp", "four"]);
        assert_ne!(plain["tcp"], plain["four"]);
        let changed = |from: &str, to: &str| {
            let other = of(from, to);
            names.map(|name| other[name] != plain[name])
        };
        assert_eq!(changed("# first", "# second"), [false, false]);
        assert_eq!(changed("repetitions = 3", "repetitions = 9"), [false, false]);
        assert_eq!(changed("title = 'x'", "title = 'y'"), [false, false]);
        assert_eq!(changed("1mbit", "2mbit"), [true, true]);
        assert_eq!(changed("'8s'", "'9s'"), [true, true]);
        assert_eq!(changed("streams = 4", "streams = 5"), [false, true]);
    }

    #[test]
    fn invalid_service_is_refused_with_field_and_remedy() {
        for (more, words) in [
            ("[[contender]]\ntool = 'tcp'\ncpu = 0.5", "not support cpu, a field of datagrams"),
            ("[[contender]]\ntool = 'datagrams'\ncpu = 0.0", "not cpu = 0: write 0.01 to 1"),
            (
                "[run]\ncpu = 50.0\n[[contender]]\ntool = 'datagrams'",
                "not cpu = 50: write 0.01 to 1",
            ),
            (
                "[[contender]]\ntool = 'datagrams'\nmessage = '64KiB'",
                "supports messages of 64 to 65507 bytes, not message = \"65536B\"",
            ),
            (
                "[[contender]]\ntool = 'datagrams'\nreceive-buffer = '0B'",
                "receive-buffer must be above zero",
            ),
            ("[[contender]]\ntool = 'datagrams'\nreceive-buffer = 'rrda'", "rrda"),
            (
                "[path]\nloss = '1%'\n[[contender]]\ntool = 'datagrams'",
                "attributes all losses to its socket: leave out path.loss",
            ),
        ] {
            let text = format!("extends = 'base.toml'\n{more}");
            let error = read_texts(&[("mine.toml", &text), BASE]).unwrap_err().to_string();
            assert!(error.contains("mine.toml") && error.contains(words), "{error}");
        }
    }

    #[test]
    fn run_cpu_is_default_of_contenders() {
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
    fn senders_have_individual_delays() {
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
    fn cross_traffic_keeps_scenario_congestion_control() {
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
            let cross_traffic =
                settings.cross_tcp.iter().map(|cross| settings.cross_congestion(cross));
            assert_eq!(cross_traffic.collect::<Vec<_>>(), [Some("cubic"), Some("bbr"), None]);
        }
    }

    /// Invalid additions to the base, each with a part of the expected message.
    const INVALID: &[(&str, &str)] = &[
        ("[path]\nspeed = '1gbit'", "speed"),
        ("[path]\nrate = 'fast'", "fast"),
        ("[[contender]]\ntool = 'pigeon'", "pigeon"),
        ("[[contender]]\ntool = 'tcp'\n[[contender]]\ntool = 'tcp'", "the name \"tcp\""),
        ("contender = []", "no contender"),
        ("[run]\nrepetitions = 0", "above zero"),
        ("[run]\nduration = '0s'", "above zero"),
        ("[[contender]]\ntool = 'udp'\nload = 0.0", "load must be above zero"),
        ("[[contender]]\ntool = 'tcp'\nstreams = 0", "\"tcp\": streams must be above zero"),
        ("[paths]", "unknown field \"paths\": choose title, extends, path"),
        ("[sweep]\nkey = 'run.seed'", "write [[sweep]]"),
        ("[cross-tcp]\nflows = 1", "write [[cross-tcp]]"),
        ("[[sweep]]\nkey = 'contender.streams'\nvalues = [1]", "lists cannot be swept"),
        ("[[sweep]]\nkey = 'path.rtt'\nvalues = [['1ms']]", "invalid type: sequence"),
        ("[senders]\ndelay = []", "at least one time"),
        ("[senders]\ndelay = 20", "or a list of times"),
        ("[senders]\ndelay = '6s'", "an RTT of 6.02 s is too long"),
        ("[path]\nloss = '0.1'", "0.1% or 10%"),
        ("[[sweep]]\nkey = 'path.rtt'\nvalues = []", "no values"),
        ("[[sweep]]\nkey = 'title.x'\nvalues = [1]", "title.x: title is not a table"),
        ("[[sweep]]\nkey = 'path.rtt.x'\nvalues = [1]\n[path]\nrtt = '1ms'", "path.rtt.x: rtt"),
        (
            "[[sweep]]\nkey = 'run.seed'\nvalues = [1]\n[[sweep]]\nkey = 'run.seed'\nvalues = [2]",
            "run.seed is swept twice",
        ),
        ("[run]\ntimeout = '0s'", "run.timeout must be above zero"),
        ("[run]\ninterval = '0s'", "run.interval is 0 us: 1 ms to 1 s"),
        ("[run]\ninterval = '10s'", "run.interval is 10 s: 1 ms to 1 s"),
        (
            "[run]\ninterval = '500ms'\nduration = '500ms'",
            "must be shorter than run.duration, 500 ms",
        ),
        ("[data]\nsize = '0B'", "data.size must be above zero"),
        ("[data]\nfiles = 7\nmixed = true", "data.mixed needs at least 8 files"),
        ("[senders]\ncount = 70000", "70000 connections"),
        ("[[cross-tcp]]\nflows = 1\nwindow = '0B'", "cross-tcp.window"),
        (
            "[[contender]]\ntool = 'scp'\nstreams = 4",
            "the tool scp does not support streams, a field of bankfull, probe, iperf3, nuttcp, gridftp, aria2, tcp, model, tuned-model, ns3",
        ),
        ("[[contender]]\ntool = 'iperf3'\nload = 1.0", "not support load, a field of udp"),
        ("[[contender]]\ntool = 'tcp'\nrounds = 3", "not support rounds, a field of curl, incast"),
        ("[[contender]]\ntool = 'tcp'\nblock = '1kB'", "not support block"),
        ("[[contender]]\ntool = 'incast'\ntotal = '2MB'\nblock = '1kB'", "takes block or total"),
        (
            "[senders]\ncount = 3\n[[contender]]\ntool = 'incast'\ntotal = '2B'",
            "part of the total must be above zero",
        ),
        ("[[contender]]\ntool = 'tcp'\nflags = ['-x']", "not support flags"),
        ("[[contender]]\ntool = 'udp'\ncongestion = 'bbr'", "not support congestion"),
        ("[run]\nduration = '1.5s'\n[[contender]]\ntool = 'iperf3'", "iperf3 takes whole seconds"),
        ("[data]\nfiles = 2\n[[contender]]\ntool = 'udt'", "udt moves one file"),
        (
            "[[contender]]\ntool = 'model'\ncongestion = 'vegas'",
            "model supports cubic, reno, bbr and quic only",
        ),
    ];

    #[test]
    fn path_in_a_sweep_has_its_name_and_its_words() {
        let text = "extends = 'base.toml'\n[run]\nduration = '2s'\nrtts = 100\n[[sweep]]\nkey = 'path'\nvalues = [\n\
                    { name = 'slow', rtt = '40ms', link = ['codel', 'ecn'], tcp-ecn = 1 },\n\
                    { rtt = '2ms', link = ['jitter:1ms'] }]";
        let found = read_texts(&[("mine.toml", text), BASE]).unwrap();
        let [slow, other] = &found.conditions[..] else { panic!("{found:?}") };
        assert_eq!(
            (&slow.values[..], &other.values[..]),
            (&["slow".to_owned()][..], &["jitter:1ms 2ms".to_owned()][..])
        );
        let seconds = |at: &Condition| at.settings.run.duration.as_secs();
        assert_eq!((seconds(slow), seconds(other)), (4, 2));
        assert!(slow.settings.path_config().unwrap().forward.ecn);
    }

    #[test]
    fn invalid_scenario_is_refused_with_file_and_cause() {
        let circle = ("mine.toml", "extends = 'mine.toml'");
        let error = read_texts(&[circle]).unwrap_err().to_string();
        assert!(error.contains("mine.toml") && error.contains("extend each other"), "{error}");
        for (more, words) in INVALID {
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
