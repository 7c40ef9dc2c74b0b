//! Packed rings, descriptor by descriptor, in the words of the specification: details of the ring
//! that the model of the exchange does not see.

mod book;
mod chains;
mod hostile;
mod order;
mod positions;
