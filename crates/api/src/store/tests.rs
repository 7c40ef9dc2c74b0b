//! Crashes and failures at every step, damaged files, owners.

mod crash;
mod damage;
mod killed;
mod model;
mod owners;

use std::collections::BTreeMap;

use serde_json::json;

use super::{Files, Store, StoreError};
use ::model::state::State;
use ::model::testing::{adapter, document, state, with};

/// A state that names its number everywhere, so that a mixture of two shows.
pub(super) fn numbered(number: u8) -> State {
    let mut document = with(document(), "/switch/0/ageing_s", json!(100 + u32::from(number)));
    document = with(document, "/nic/0/vf/0/max_tx_mbps", json!(number));
    document = with(document, "/adapter/-", adapter(&format!("a{number}"), 9, number % 100));
    state(&document)
}

/// The owners that go with it.
pub(super) fn holders(number: u8) -> BTreeMap<String, String> {
    [("nic0/vf1".to_owned(), format!("a{number}"))].into()
}

/// One apply, as it is done around a data plane that does what it is told.
pub(super) fn apply<F: Files>(store: &mut Store<F>, number: u8) -> Result<(), StoreError> {
    let to = numbered(number);
    store.begin(&to)?;
    store.commit(&to, &holders(number))
}

/// Asserts that what is stored is whole, and says which number it has; `None` before the first.
pub(super) fn number_of<F: Files>(store: &Store<F>) -> Option<u8> {
    let record = store.record();
    if record.generation == 0 {
        assert_eq!(record.state, State::default());
        assert!(record.owners.of("nic0/vf1").is_none());
        return None;
    }
    let owner = record.owners.of("nic0/vf1").expect("the state has an owner");
    let number: u8 = owner.holder[1..].parse().expect("the owner names its number");
    assert_eq!(record.state, numbered(number), "state and owners are of one apply");
    Some(number)
}
