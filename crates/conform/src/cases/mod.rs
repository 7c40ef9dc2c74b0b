//! Test cases, by subject.

mod bridging;
mod identity;
mod limits;
mod modes;
mod ownership;
mod paths;
mod restart;
mod switchdev;
mod vlans;

use super::Test;

/// Every test, in the order of the catalogue.
pub(super) const ALL: &[&[Test]] = &[
    ownership::TESTS,
    restart::TESTS,
    limits::TESTS,
    vlans::TESTS,
    modes::TESTS,
    bridging::TESTS,
    identity::TESTS,
    paths::TESTS,
];
