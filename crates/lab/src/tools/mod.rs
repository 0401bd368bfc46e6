//! Tools that can be measured: bankfull, other programs as shell commands, and built-in traffic
//! generators.

mod builtin;
mod external;
pub mod fields;
pub mod shell;
mod simulated;
pub mod tool;

use self::tool::{Tool, ToolKind};
use crate::base::error::{LabError, Result};
use crate::model::contender::Contender;
use crate::model::settings::Settings;
use crate::model::units::ParseResult;
use crate::tools::fields::Field;
/// All tools.
pub static TOOLS: [&Tool; 21] = [
    &external::programs::BANKFULL,
    &external::programs::PROBE,
    &external::programs::GATHER,
    &external::programs::IPERF3,
    &external::programs::NUTTCP,
    &external::programs::RSYNC,
    &external::programs::SCP,
    &external::programs::GRIDFTP,
    &external::udt::UDT,
    &external::aria2::ARIA2,
    &external::curl::CURL,
    &external::programs::RCLONE,
    &external::programs::QCP,
    &external::programs::PING,
    &builtin::generators::TCP,
    &builtin::generators::UDP,
    &builtin::incast::INCAST,
    &builtin::datagrams::DATAGRAMS,
    &simulated::model::MODEL,
    &simulated::tuned::TUNED_MODEL,
    &simulated::ns3::NS3,
];

/// Finds a tool by name.
///
/// # Errors
/// [`LabError::Usage`] with the known names.
pub fn find(name: &str) -> Result<&'static Tool> {
    TOOLS.iter().copied().find(|tool| tool.name == name).ok_or_else(|| {
        let known: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
        LabError::Usage(format!("unknown tool {name:?}: choose {}", known.join(", ")))
    })
}

/// Tools with one data connection per stream, and one stream by default.
static ONE_STREAM_BY_DEFAULT: [&Tool; 7] = [
    &builtin::generators::TCP,
    &builtin::generators::UDP,
    &builtin::incast::INCAST,
    &external::programs::IPERF3,
    &external::programs::NUTTCP,
    &external::programs::RSYNC,
    &external::programs::SCP,
];

/// Number of data connections of all senders; `None` if the tool decides, or flags may change it.
#[must_use]
pub fn data_flow_count(tool: &Tool, contender: &Contender, senders: usize) -> Option<usize> {
    let has_one = ONE_STREAM_BY_DEFAULT.iter().any(|one| one.name == tool.name);
    let is_bankfull = tool.name == external::programs::BANKFULL.name;
    let streams = contender.streams.or(has_one.then_some(1));
    let streams = streams.filter(|_| (has_one || is_bankfull) && contender.flags.is_empty())?;
    Some(senders.saturating_mul(streams))
}

/// Checks that a contender's tool supports its fields and the scenario's settings.
pub(crate) fn check(settings: &Settings, contender: &Contender) -> ParseResult<()> {
    let tool = find(&contender.tool).map_err(|e| e.to_string())?;
    let is_useless = |field: &Field| field.is_set(contender) && !tool.supports.contains(field);
    if let Some(field) = Field::ALL.into_iter().find(is_useless) {
        let takers = TOOLS.iter().filter(|tool| tool.supports.contains(&field));
        let takers: Vec<&str> = takers.map(|tool| tool.name).collect();
        return Err(format!(
            "contender {:?}: the tool {} does not support {}, a field of {}",
            contender.name,
            tool.name,
            field.name(),
            takers.join(", ")
        ));
    }
    if !settings.senders.stagger.is_zero() && !matches!(tool.kind, ToolKind::Program(_)) {
        return Err(format!(
            "contender {:?}: the tool {} starts all senders at once: leave out senders.stagger",
            contender.name, tool.name
        ));
    }
    match (tool.unsupported)(settings, contender) {
        None => Ok(()),
        Some(why) => Err(format!("contender {:?}: the tool {} {why}", contender.name, tool.name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_names_are_unique_and_unknown_is_refused() {
        let mut names: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TOOLS.len());
        assert_eq!(find("iperf3").unwrap().name, "iperf3");
        let error = find("pigeon").unwrap_err().to_string();
        assert!(error.contains("pigeon") && error.contains("bankfull"), "{error}");
    }

    #[test]
    fn data_flow_count_is_known_for_fixed_streams() {
        let count = |text: &str| {
            let contender: Contender = toml::from_str(text).unwrap();
            data_flow_count(find(&contender.tool).unwrap(), &contender, 3)
        };
        assert_eq!(count("tool = 'tcp'"), Some(3));
        assert_eq!(count("tool = 'iperf3'\nstreams = 4"), Some(12));
        assert_eq!(count("tool = 'nuttcp'\nstreams = 2"), Some(6));
        assert_eq!(count("tool = 'iperf3'\nflags = ['-P', '2']"), None);
        assert_eq!(count("tool = 'bankfull'\nstreams = 4"), Some(12));
        assert_eq!(count("tool = 'bankfull'"), None, "it chooses");
        assert_eq!(count("tool = 'rsync'"), Some(3));
        assert_eq!(count("tool = 'gridftp'\nstreams = 2"), None);
    }
}
