//! Tests of both sides of the ring: against an independent implementation, against a model, against
//! a hostile neighbour, and of the order of notifications under every interleaving.

mod aside;
mod chains;
pub(crate) mod crash;
mod exchange;
mod hostile;
mod kit;
mod limits;
mod log;
mod oracle;
mod ordering;
mod packed;
mod threads;
