//! `[api]`: where the API is served, and what goes together there.

use std::net::SocketAddr;

use super::super::api::{Api, ApiTcp, ApiTls};
use super::super::table::Table;
use super::super::value::Given;
use super::{Reader, absolute_path};
use crate::api::socket_path;

impl Reader {
    /// `None`: it is not served, or a field is wrong and reported.
    pub(super) fn api(&mut self, root: &Table<'_>) -> Option<Api> {
        let usual = socket_path(&self.run_dir);
        let Some(table) = root.table("api") else {
            self.own_files.push(usual.clone());
            return Some(Api { socket: usual, tcp: None });
        };
        let (enabled, tcp) = (table.bool("enabled"), tcp(&table));
        let socket = match table.item("socket") {
            Given::Absent => {
                // Whoever switches the API off may have the name.
                self.own_files.extend(enabled.then(|| usual.clone()));
                Some(usual)
            }
            _ => self.socket(&table),
        };
        enabled.then_some(Api { socket: socket?, tcp })
    }
}

/// The fields of TCP. Each needs the others, and none is ignored.
fn tcp(table: &Table<'_>) -> Option<ApiTcp> {
    let address = address(table);
    let [token_file, certificate, key] =
        ["token_file", "tls_certificate", "tls_key"].map(|name| absolute_path(table, name));
    let is_there = |name: &str| matches!(table.item(name), Given::Value(_));
    let needs = [
        ("tcp", "token_file", "the secret that clients must show"),
        ("token_file", "tcp", "the address it is for"),
        ("tls_certificate", "tcp", "the address it is for"),
        ("tls_key", "tcp", "the address it is for"),
        ("tls_certificate", "tls_key", "the certificate's key"),
        ("tls_key", "tls_certificate", "the key's certificate"),
    ];
    for (name, other, what) in needs {
        if !is_there(other)
            && let Given::Value(item) = table.item(name)
        {
            table.refuse(&item, &format!("needs `{other}`, {what}"));
        }
    }
    let address = address?;
    if !is_there("tls_certificate")
        && !address.ip().is_loopback()
        && let Given::Value(item) = table.item("tcp")
    {
        let problem = "would send the token in the clear; give `tls_certificate` and `tls_key`, or listen on 127.0.0.1";
        table.refuse(&item, problem);
    }
    let tls = certificate.zip(key).map(|(certificate, key)| ApiTls { certificate, key });
    Some(ApiTcp { address, token_file: token_file?, tls })
}

fn address(table: &Table<'_>) -> Option<SocketAddr> {
    let (text, item) = table.text("tcp").value()?;
    let address = text.parse().ok();
    if address.is_none() {
        table.refuse_as(table.field("tcp"), &item, "is not an IP address with a port");
    }
    address
}
