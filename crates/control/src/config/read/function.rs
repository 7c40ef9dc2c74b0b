//! What PF, VFs and uplink are made of: addresses and an attachment.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use wire::{Mac, Vid};

use super::super::fields::Field;
use super::super::model::{Attachment, Function, SocketMode, Uplink, UplinkKind};
use super::super::table::Table;
use super::super::value::{Given, Item, text_of};
use super::super::{MAX_FURTHER_MACS, MAX_SOCKET_PATH_BYTES};
use super::Reader;
use super::nic::NicScope;
use super::rules::rules;

impl Reader {
    pub(super) fn uplink(&mut self, table: &Table<'_>) -> Option<Uplink> {
        let kind = table.choice("kind").map(|_| UplinkKind::VhostUser);
        let attachment = self.attachment(table);
        Some(Uplink { kind: kind?, attachment: attachment? })
    }

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

    fn attachment(&mut self, table: &Table<'_>) -> Option<Attachment> {
        let socket = self.socket(table);
        let mode = table.choice("mode").map(|word| match word {
            "client" => SocketMode::Client,
            _ => SocketMode::Server,
        });
        let (queue_pairs, mtu) = (table.int("queue_pairs"), table.int("mtu"));
        let [mergeable, indirect, event_index, in_order] =
            ["mergeable", "indirect", "event_index", "in_order"].map(|name| table.bool(name));
        Some(Attachment {
            socket: socket?,
            mode: mode?,
            queue_pairs,
            mtu,
            mergeable,
            indirect,
            event_index,
            in_order,
        })
    }

    /// The path of a socket, which no other field of the file has.
    pub(super) fn socket(&mut self, table: &Table<'_>) -> Option<PathBuf> {
        let (text, item) = table.text("socket").value()?;
        let field = table.field("socket");
        let last = text.rsplit('/').next().unwrap_or_default();
        if ["", ".", ".."].contains(&last) || text.contains('\0') {
            table.refuse_as(field, &item, "is not the path of a socket");
            return None;
        }
        let path = self.run_dir.join(text);
        let bytes = path.as_os_str().as_bytes().len();
        if bytes > MAX_SOCKET_PATH_BYTES {
            let (with, or) = match Path::new(text).is_absolute() {
                true => ("", ""),
                false => (" with run_dir before it", " or run_dir"),
            };
            let problem = format!(
                "is {bytes} bytes long{with}; a socket's path has at most {MAX_SOCKET_PATH_BYTES}, so shorten it{or}"
            );
            table.refuse(&item, &problem);
            return None;
        }
        if self.own_files.contains(&path) {
            table.refuse_as(field, &item, "is a file of the daemon's own, so choose another name");
            return None;
        }
        let words = table.report.quote(item.span.clone());
        let at = (item.path, item.span.start);
        let remedy = "give each attachment a socket of its own";
        self.sockets.claim(table.report, path.clone(), at, (&words, remedy));
        Some(path)
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
