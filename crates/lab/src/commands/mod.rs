//! What the command `bankfull-lab` does.

pub mod doctor;
pub mod path;
