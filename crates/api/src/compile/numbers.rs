//! Numbers of switch ports.

use std::collections::{BTreeMap, BTreeSet};

use bridge::PortId;
use bridge::switch::MAX_PORTS;

/// Port numbers of a switch, by the adapter's name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Numbers(BTreeMap<String, u16>);

impl Numbers {
    /// Number of a name.
    pub fn get(&self, name: &str) -> Option<PortId> {
        self.0.get(name).copied().map(PortId)
    }

    /// All names with their numbers.
    pub fn all(&self) -> impl Iterator<Item = (&str, PortId)> {
        self.0.iter().map(|(name, number)| (name.as_str(), PortId(*number)))
    }

    /// Assigns a number to each name in `need`. A name keeps its number, and so do the names in
    /// `stay` while numbers last.
    ///
    /// A new name gets the lowest number that was never used. Numbers of removed adapters are
    /// reused only if there is no other.
    ///
    /// # Errors
    /// Number of names, if it exceeds the number of ports.
    pub(super) fn next(&self, need: &[&str], stay: &BTreeSet<&str>) -> Result<Numbers, usize> {
        let room = MAX_PORTS - 1; // port 0 is the uplink's
        let needed: BTreeSet<&str> = need.iter().copied().collect();
        if needed.len() > room {
            return Err(needed.len());
        }
        let mut spare = room - needed.len();
        let mut kept = BTreeMap::new();
        for (name, number) in &self.0 {
            let is_needed = needed.contains(name.as_str());
            let stays = !is_needed && spare > 0 && stay.contains(name.as_str());
            spare -= usize::from(stays);
            if is_needed || stays {
                kept.insert(name.clone(), *number);
            }
        }
        let taken: BTreeSet<u16> = kept.values().copied().collect();
        let had: BTreeSet<u16> = self.0.values().copied().collect();
        let fresh = (1..MAX_PORTS as u16).filter(|number| !had.contains(number));
        let mut free = fresh.chain(had.difference(&taken).copied());
        for name in needed {
            if !kept.contains_key(name) {
                kept.extend(free.next().map(|number| (name.to_owned(), number)));
            }
        }
        Ok(Numbers(kept))
    }

    /// Numbers that were freed or given to another name.
    pub(super) fn left(&self, before: &Numbers) -> Vec<PortId> {
        let gone = before.0.iter().filter(|(name, number)| self.0.get(*name) != Some(number));
        gone.map(|(_, number)| PortId(*number)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(before: &Numbers, need: &[&str], stay: &[&str]) -> Numbers {
        before.next(need, &stay.iter().copied().collect()).unwrap()
    }

    #[test]
    fn who_stays_keeps_its_number_and_who_comes_inherits_none() {
        let first = next(&Numbers::default(), &["a", "b", "c"], &[]);
        let of = |numbers: &Numbers, name: &str| numbers.get(name).map(|port| port.0);
        assert_eq!(
            [of(&first, "a"), of(&first, "b"), of(&first, "c")],
            [Some(1), Some(2), Some(3)]
        );
        let second = next(&first, &["d", "c"], &["b", "c", "d"]);
        assert_eq!(of(&second, "a"), None);
        assert_eq!(
            [of(&second, "b"), of(&second, "c"), of(&second, "d")],
            [Some(2), Some(3), Some(4)]
        );
        assert_eq!(second.left(&first), [PortId(1)]);
        assert_eq!(next(&second, &["c", "b", "d"], &[]), second);
    }

    #[test]
    fn when_numbers_run_out_those_who_need_none_give_theirs() {
        let names: Vec<String> = (0..MAX_PORTS).map(|n| format!("a{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let full = next(&Numbers::default(), &names[..511], &[]);
        let stay: BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(full.next(&names, &stay), Err(512));
        let one_on_a_vf = full.next(&names[1..], &stay).unwrap();
        assert_eq!(one_on_a_vf.get("a0"), None);
        assert_eq!(one_on_a_vf.get("a511"), full.get("a0"), "the only number that is left");
        assert_eq!(one_on_a_vf.left(&full), [full.get("a0").unwrap()]);
        assert_eq!(one_on_a_vf.get("a7"), full.get("a7"));
    }
}
