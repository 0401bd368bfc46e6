//! The crate from outside, one module per subject: the books of both sides, transfers between them
//! over a path that breaks, the golden vectors that `spec/vectors` holds for every language, and
//! bytes that are not what they should be.

#[cfg(test)]
mod leniency;
#[cfg(test)]
mod receive;
#[cfg(test)]
mod rubbish;
#[cfg(test)]
mod send;
#[cfg(test)]
mod support;
#[cfg(test)]
mod transfer;
#[cfg(test)]
mod vectors;
