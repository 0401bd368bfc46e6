//! Plain data shared by all other modules: settings, jobs, metrics and results. No I/O.

pub mod background;
pub mod contender;
pub mod job;
pub mod link_words;
pub mod metrics;
pub mod path;
pub mod plan;
pub mod results;
pub mod settings;
pub mod units;
