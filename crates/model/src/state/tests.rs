//! Tests of documents.

mod allocation;
mod form;
mod meaning;
mod pci;
mod plans;
mod switchdev;

pub(super) use crate::testing::{adapter, document, state, with};
