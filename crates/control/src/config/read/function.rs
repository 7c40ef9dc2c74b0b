//! What PF and VFs are made of: addresses, rules and an attachment.

use wire::{Mac, Vid};

use super::super::MAX_FURTHER_MACS;
use super::super::fields::Field;
use super::super::model::Function;
use super::super::table::Table;
use super::super::value::{Given, Item, text_of};
use super::Reader;
use super::nic::NicScope;
use super::rules::rules;

impl Reader {
    pub(super) fn function(&mut self, table: &Table<'_>, scope: &mut NicScope) -> Option<Function> {
        let vlan = match table.given_int("vlan") {
            Given::Value((number, _)) => {
                Given::Value(u16::try_from(number).ok().and_then(|number| Vid::new(number).ok())?)
            }
            Given::Absent => Given::Absent,
            Given::Bad => Given::Bad,
        };
        let mut claim = |mac: Mac, item: Item<'_>| {
            // Which addresses collide depends on the VLAN, so with a wrong one nothing can be said.
            if vlan != Given::Bad {
                let vlan = vlan.value();
                let words = match vlan {
                    Some(vlan) => format!("MAC {mac} on VLAN {}", vlan.get()),
                    None => format!("MAC {mac}, untagged,"),
                };
                let remedy = "give each function of the NIC an address of its own";
                let at = (item.path, item.span.start);
                scope.addresses.claim(table.report, (mac, vlan), at, (&words, remedy));
            }
        };
        let mac = table.item("mac").value().and_then(|item| {
            let mac = unicast(table, table.field("mac"), &item)?;
            claim(mac, item);
            Some(mac)
        });
        let mut macs = Vec::new();
        if let Given::Value((items, _)) = table.list("macs", MAX_FURTHER_MACS) {
            for item in items {
                if let Some(mac) = unicast(table, table.field("mac"), &item) {
                    claim(mac, item);
                    macs.push(mac);
                }
            }
        }
        let vlan = vlan.value();
        let rules = rules(table, vlan.is_some());
        let attachment = self.attachment(table)?;
        Some(Function { mac: mac?, macs, vlan, rules: rules?, attachment })
    }
}

fn unicast(table: &Table<'_>, field: &Field, item: &Item<'_>) -> Option<Mac> {
    let Some(text) = text_of(item.value) else {
        return table.wrong_type(field, item).value();
    };
    let problem = match text.parse::<Mac>() {
        Ok(mac) if mac.is_zero() => "is all zeros, which no function may have",
        Ok(mac) if mac.is_multicast() => "is a multicast address, its first byte is odd",
        Ok(mac) => return Some(mac),
        Err(_) => {
            table.refuse(
                item,
                "is not a MAC address; write six hex pairs such as 02:00:00:00:00:01",
            );
            return None;
        }
    };
    table.refuse_as(field, item, problem);
    None
}
