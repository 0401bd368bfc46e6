//! Execution of scenarios and benchmarks: programs on hosts, measurements and their analysis.

mod analysis;
pub mod bench_io;
mod guard;
mod observer;
mod programs;
pub mod runner;
pub(crate) mod work_dir;
