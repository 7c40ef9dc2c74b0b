//! Packed rings, descriptor by descriptor, in the words of the specification: what the model of the
//! exchange, which knows nothing of the ring, cannot see.

mod book;
mod chains;
mod hostile;
mod order;
mod positions;
