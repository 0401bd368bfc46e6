//! Commands of `bankfull-lab`, one module each.

pub mod doctor;
pub mod io;
pub mod list;
pub mod path;
pub mod predict;
pub mod regret;
pub mod run;
