//! One `[[nic]]` and the numbering of its VFs.

use model::profile::Profile;
use wire::{Mac, Vid};

use super::super::model::{Nic, NicKind, Vf};
use super::super::table::Table;
use super::super::unique::Unique;
use super::super::value::Given;
use super::Reader;

/// The longest name of a NIC, as of a Linux network interface.
const MAX_NAME_BYTES: usize = 15;

/// What must not occur twice on one NIC.
pub(super) struct NicScope {
    pub(super) addresses: Unique<(Mac, Option<Vid>)>,
    pub(super) indices: Unique<u16>,
}

impl Reader {
    pub(super) fn nic(&mut self, table: &Table<'_>) -> Option<Nic> {
        let name = self.name(table);
        // Only one word is allowed so far, so there is nothing to choose.
        let kind = table.choice("kind").map(|_| NicKind::Soft);
        let bridging = match table.choice("bridging") {
            Some("vepa") => nic::Mode::Vepa,
            Some("isolated") => nic::Mode::Isolated,
            _ => nic::Mode::Veb,
        };
        let switchdev = table.choice("mode") == Some("switchdev");
        let profile = table.choice("profile").and_then(Profile::named);
        let (budget_permille, vmq_queues) = (table.int("budget_permille"), table.int("vmq_queues"));
        let mut scope = NicScope { addresses: Unique::new(), indices: Unique::new() };
        let uplink = self.uplink(table);
        let pf = table.table("pf").map(|pf| self.function(&pf, &mut scope));
        let tables = table.tables("vf");
        let total_vfs = total_vfs(table, tables.len());
        let vfs: Vec<Option<Vf>> = tables
            .iter()
            .enumerate()
            .map(|(position, vf)| {
                let index = index(vf, position, total_vfs, &mut scope);
                let function = self.function(vf, &mut scope);
                Some(Vf { index: index?, function: function? })
            })
            .collect();
        Some(Nic {
            name: name?,
            kind: kind?,
            profile: profile?,
            switchdev,
            bridging,
            total_vfs: total_vfs?.0,
            budget_permille,
            vmq_queues,
            uplink: uplink?,
            pf: all_or_nothing(pf)?,
            vfs: vfs.into_iter().collect::<Option<_>>()?,
        })
    }

    fn name(&mut self, table: &Table<'_>) -> Option<String> {
        let (name, item) = table.text("name").value()?;
        let fits = (1..=MAX_NAME_BYTES).contains(&name.len());
        if !fits || !name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-')) {
            table.refuse_as(table.field("name"), &item, "is not a name for a NIC");
            return None;
        }
        let words = format!("\"{name}\"");
        let at = (item.path, item.span.start);
        self.names.claim(
            table.report,
            name.to_owned(),
            at,
            (&words, "give each NIC a name of its own"),
        );
        Some(name.to_owned())
    }
}

/// `Some(None)` for a table that is not there, `None` for one with a mistake.
fn all_or_nothing<T>(table: Option<Option<T>>) -> Option<Option<T>> {
    match table {
        Some(read) => read.map(Some),
        None => Some(None),
    }
}

/// How many VFs there may be, with the words for why; `None` if the number itself is wrong.
fn total_vfs(table: &Table<'_>, tables: usize) -> Option<(u16, &'static str)> {
    let (total, why) = match table.given_int("total_vfs") {
        Given::Bad => return None,
        Given::Value((total, item)) => {
            if (total as usize) < tables {
                let problem = format!(
                    "is fewer than the {tables} [[nic.vf]] tables of this NIC; raise it to {tables}, or remove tables"
                );
                table.refuse(&item, &problem);
                return None;
            }
            (total, "")
        }
        Given::Absent => (tables as u64, " (the number of [[nic.vf]] tables)"),
    };
    match u16::try_from(total) {
        Ok(total) if total <= 255 => Some((total, why)),
        _ => {
            let message = format!("there are {tables} tables; a NIC has at most 255 VFs");
            table.report.error(table.at, table.path_of("vf"), message);
            None
        }
    }
}

fn index(
    table: &Table<'_>,
    position: usize,
    total_vfs: Option<(u16, &str)>,
    scope: &mut NicScope,
) -> Option<u16> {
    let given = table.given_int("index");
    let (index, at) = match given {
        Given::Bad => return None,
        Given::Absent => (position as u64, None),
        Given::Value((index, item)) => (index, Some(item)),
    };
    let index = u16::try_from(index).ok()?;
    if let (Some(item), Some((total, why))) = (&at, total_vfs)
        && index >= total
    {
        let last = total.saturating_sub(1);
        table.refuse(
            item,
            &format!("is too large, as total_vfs is {total}{why}; write 0 to {last}, or set a larger total_vfs"),
        );
        return None;
    }
    let words = format!("VF {index}");
    let place = match at {
        Some(item) => (item.path, item.span.start),
        None => (table.path_of("index"), table.at),
    };
    scope.indices.claim(
        table.report,
        index,
        place,
        (&words, "give each VF of the NIC an index of its own"),
    );
    Some(index)
}
