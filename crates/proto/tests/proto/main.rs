//! Tests of the public interface: both ledgers, simulated transfers over failing streams, golden
//! vectors (`spec/vectors`), compatible and damaged encodings.

#[cfg(test)]
mod compatibility;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod open_ended;
#[cfg(test)]
mod receive;
#[cfg(test)]
mod send;
mod send_limits;
#[cfg(test)]
mod support;
#[cfg(test)]
mod transfer;
#[cfg(test)]
mod vectors;
