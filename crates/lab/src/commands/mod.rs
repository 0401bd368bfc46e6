//! What the command `bankfull-lab` can do, one module for each of its commands.

pub mod doctor;
pub mod io;
pub mod list;
pub mod path;
pub mod predict;
pub mod run;
