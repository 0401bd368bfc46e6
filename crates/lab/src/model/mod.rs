//! Plain data shared by all other modules: settings, jobs, metrics and results. No I/O.

pub mod contender;
pub mod job;
pub mod metrics;
pub mod path;
pub mod plan;
pub mod results;
pub mod settings;
pub mod units;
