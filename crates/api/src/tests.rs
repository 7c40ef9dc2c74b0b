//! The API over real sockets.

mod capture;
mod changes;
mod dashboard;
mod document;
mod guests;
mod life;
mod limits;
mod listen;
mod merge;
mod moves;
mod parts;
mod people;
mod plan;
mod reading;
mod tls;
mod trace;
mod upgrade;

use super::{Client, ClientError, Listen};
use crate::testing::*;
