//! Rules for attachments: unique resources, and settings that exclude each other.

use std::net::IpAddr;

use super::super::{
    Attachment, InterfaceAddress, Pcap, SocketMode, Stream, Tap, Vduse, VfInterface, VhostUser, Xdp,
};
use super::Check;

impl<'a> Check<'a> {
    /// Attachment of a guest.
    pub(super) fn guests_attachment(&mut self, attachment: &'a Attachment, at: &str) {
        if let Attachment::Xdp(Xdp { filter: true, .. }) = attachment {
            let error = "is for uplinks only";
            let allowed = "write false".to_owned();
            self.wrong(format!("{at}.filter"), true, error, allowed);
        }
        self.attachment(attachment, at);
    }

    /// Attachment at `at`: its resources must be unique.
    pub(super) fn attachment(&mut self, attachment: &'a Attachment, at: &str) {
        let place = format!("{at}.{}", attachment.kind().place_field());
        if let Some(socket) = attachment.socket() {
            self.sockets.claim(&mut self.problems, socket, &place, &socket);
        }
        if let Attachment::VhostUser(VhostUser { mode, socket_group, socket_mode, .. })
        | Attachment::Stream(Stream { mode, socket_group, socket_mode, .. }) = attachment
            && *mode == SocketMode::Client
        {
            let (error, allowed) =
                ("needs mode = \"server\": the VMM makes the socket", "leave it out");
            if let Some(group) = socket_group {
                self.wrong(format!("{at}.socket_group"), group.as_str(), error, allowed.to_owned());
            }
            if let Some(mode) = socket_mode {
                self.wrong(
                    format!("{at}.socket_mode"),
                    mode.to_string(),
                    error,
                    allowed.to_owned(),
                );
            }
        }
        if let Some((interface, netns)) = attachment.interface() {
            let key = (netns, interface.to_owned());
            self.interfaces.claim(&mut self.problems, key, &place, &interface);
        }
        match attachment {
            Attachment::Tap(Tap { ip, gateway, .. })
            | Attachment::VfInterface(VfInterface { ip, gateway, .. }) => {
                self.addresses(ip, gateway, at);
            }
            _ => {}
        }
        if let Attachment::Vduse(Vduse { name, .. }) = attachment {
            if name == "control" {
                let allowed = "write another name".to_owned();
                self.wrong(place, name.as_str(), "is reserved by the kernel", allowed);
            } else {
                self.vdpas.claim(&mut self.problems, name, &place, &name.as_str());
            }
            return;
        }
        let Attachment::Pcap(Pcap { sink, rate_mbps, rate_pps, .. }) = attachment else { return };
        if let Some(sink) = sink {
            self.file(sink, format!("{at}.sink"));
        }
        if *rate_mbps > 0 && *rate_pps > 0 {
            let allowed = "leave one of the two out".to_owned();
            self.wrong(format!("{at}.rate_pps"), *rate_pps, "is given beside rate_mbps", allowed);
        }
    }

    /// IP addresses and gateways of an interface.
    fn addresses(&mut self, ip: &[InterfaceAddress], gateway: &[IpAddr], at: &str) {
        for (i, one) in ip.iter().enumerate() {
            if ip[..i].iter().any(|other| other.address == one.address) {
                let field = format!("{at}.ip[{i}]");
                self.wrong(field, one.to_string(), "is given twice", "leave one of the two out");
            }
        }
        for (i, one) in gateway.iter().enumerate() {
            let is_v6 = one.is_ipv6();
            let is_link_local = matches!(one, IpAddr::V6(v6) if v6.is_unicast_link_local());
            let family = if is_v6 { "IPv6" } else { "IPv4" };
            let mut same = ip.iter().filter(|own| own.address.is_ipv6() == is_v6).peekable();
            let (error, remedy) = if gateway[..i].iter().any(|other| other.is_ipv6() == is_v6) {
                (format!("is the second {family} gateway"), "leave one of the two out".to_owned())
            } else if same.peek().is_none() {
                let remedy = format!("add an {family} address to ip, or leave the gateway out");
                (format!("needs an {family} address in ip"), remedy)
            } else if ip.iter().any(|own| own.address == *one) {
                let error = "is an address of the interface itself".to_owned();
                (error, "write the address of the router".to_owned())
            } else if !is_link_local && !same.clone().any(|own| own.reaches(*one)) {
                let networks: Vec<String> = same.map(ToString::to_string).collect();
                let networks = networks.join(" or ");
                let remedy = format!("write an address in the network of {networks}");
                ("is not on link".to_owned(), remedy)
            } else {
                continue;
            };
            self.wrong(format!("{at}.gateway[{i}]"), one.to_string(), &error, remedy);
        }
    }

    /// A file that is written.
    pub(super) fn file(&mut self, path: &'a str, field: String) {
        if self.played.contains(path) {
            let allowed = "write another path".to_owned();
            return self.wrong(
                field,
                path,
                "is a capture to play, which would be overwritten",
                allowed,
            );
        }
        self.files.claim(&mut self.problems, path, &field, &path);
    }
}
