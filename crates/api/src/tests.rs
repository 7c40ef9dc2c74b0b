//! The API over real sockets.

mod changes;
mod document;
mod guests;
mod life;
mod limits;
mod listen;
mod merge;
mod moves;
mod parts;
mod people;
mod reading;
mod tls;
mod upgrade;

use super::{Client, ClientError, Listen};
use crate::testing::*;
