//! The commands: what a runtime asks for, by requests to the daemon.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use api::Method;
use common::{Daemon, Kind, has_prefix};
use host::links::{LinkAddress, Links};
use host::netns;
use serde_json::{Value, json};

use crate::adapter::{self, VfOf};
use crate::config::Network;
use crate::delegate::Delegate;
use crate::environment::{Command, Environment};
use crate::error::{CniError, Code};
use crate::result::{Address, Addresses, Interface, Route, result};

/// Version of the description of a device.
const DEVICE_INFO_VERSION: &str = "1.1.0";
/// The kernel's tree of devices.
const SYSFS: &str = "/sys";

/// A command, its network, and the daemon.
#[derive(Debug)]
pub struct Call<'a> {
    /// Environment of the command.
    pub environment: &'a Environment,
    /// Network's configuration.
    pub network: &'a Network,
    /// The same, as it was read.
    pub text: &'a [u8],
}

impl Call<'_> {
    /// Does what is asked for; returns what is to be printed.
    ///
    /// # Errors
    /// The reason for which it was not done.
    pub fn run(&self) -> Result<Option<Value>, CniError> {
        match self.environment.command {
            Command::Add => self.add().map(Some),
            Command::Del => self.del().map(|()| None),
            Command::Check => self.check().map(|()| None),
            Command::Gc => self.gc().map(|()| None),
            Command::Status => self.status().map(|()| None),
            Command::Version => Ok(None), // printed without a network
        }
    }

    fn daemon(&self) -> Daemon {
        Daemon::at(Path::new(&self.network.run_dir))
    }

    fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, CniError> {
        Ok(self.daemon().ask(method, path, body)?)
    }

    /// An answer, or `None` if the daemon does not know the object.
    fn find(&self, method: Method, path: &str) -> Result<Option<Value>, CniError> {
        Ok(self.daemon().find(method, path)?)
    }

    fn path(&self) -> Result<String, CniError> {
        let place = self.environment.place()?;
        Ok(format!("/v1/adapters/{}", adapter::name(&self.network.name, &place)))
    }

    fn ipam(&self) -> Result<Option<Delegate<'_>>, CniError> {
        let find = |plugin| Delegate::find(plugin, self.environment, self.text);
        self.network.ipam().map(find).transpose()
    }

    /// Connects the container. Repeated, it changes nothing, and its result is the same.
    fn add(&self) -> Result<Value, CniError> {
        let path = self.path()?;
        self.environment.netns()?;
        if let Some(there) = self.find(Method::GET, &path)? {
            return self.added_before(&there);
        }
        let vf = self.device()?;
        let ipam = self.ipam()?;
        let addresses = match &ipam {
            Some(ipam) => Addresses::read(ipam.run("ADD")?),
            None => self.requested(),
        };
        let undo = |error: CniError| {
            if let Some(ipam) = &ipam {
                // The first error says more.
                let _ = ipam.run("DEL");
            }
            error
        };
        let addresses = addresses.map_err(undo)?;
        let made = self.make(&path, vf.as_ref(), &addresses).map_err(undo)?;
        self.set_routes(&addresses).and_then(|()| self.write_device_info(&made)).map_err(
            |error| {
                let _ = self.find(Method::DELETE, &path);
                undo(error)
            },
        )?;
        Ok(self.result(&made, &addresses))
    }

    fn make(
        &self,
        path: &str,
        vf: Option<&VfOf>,
        addresses: &Addresses,
    ) -> Result<Value, CniError> {
        if self.network.kind() == Kind::VhostUser {
            let directory = &self.network.socket_dir;
            fs::create_dir_all(directory).map_err(|error| {
                let message = format!("{directory} cannot be made: {error}");
                CniError::new(Code::Io, message, "choose another socketDir")
            })?;
        }
        let document = adapter::document(self.network, self.environment, vf, addresses)?;
        self.ask(Method::PUT, path, Some(&document))
    }

    /// Result of an ADD that is repeated.
    fn added_before(&self, there: &Value) -> Result<Value, CniError> {
        let attachment = &there["attachment"];
        let netns = self.environment.netns()?;
        if attachment["netns"].as_str().is_some_and(|other| other != netns) {
            let message = format!("the container's interface is in {}", attachment["netns"]);
            return Err(CniError::new(Code::Changed, message, "the runtime must send DEL first"));
        }
        let gateways = attachment["gateway"].as_array().cloned().unwrap_or_default();
        let gateways: Vec<IpAddr> =
            gateways.iter().filter_map(|it| it.as_str()?.parse().ok()).collect();
        let ips = attachment["ip"].as_array().cloned().unwrap_or_default();
        let address = |ip: &Value| {
            let address = ip.as_str()?.to_owned();
            let gateway = gateways.iter().find(|it| it.is_ipv6() == address.contains(':'));
            Some(Address { gateway: gateway.copied(), address })
        };
        let default = |gateway: &IpAddr| Route {
            dst: if gateway.is_ipv6() { "::/0" } else { "0.0.0.0/0" }.to_owned(),
            gw: Some(*gateway),
        };
        let addresses = Addresses {
            ips: ips.iter().filter_map(address).collect(),
            routes: gateways.iter().map(default).collect(),
            dns: None,
        };
        Ok(self.result(there, &addresses))
    }

    fn result(&self, made: &Value, addresses: &Addresses) -> Value {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let place = self.environment.place();
        let interface = Interface {
            name: place.map(|place| place.interface.to_owned()).unwrap_or_default(),
            mac: text(&made["mac"]),
            mtu: made["attachment"]["mtu"].as_u64(),
            sandbox: self.environment.netns().unwrap_or_default().to_owned(),
            socket: made["attachment"]["socket"].as_str().map(str::to_owned),
        };
        result(&self.network.version, self.network.previous.as_ref(), &interface, addresses)
    }

    /// Addresses without an IPAM plugin: those that the runtime requests.
    fn requested(&self) -> Result<Addresses, CniError> {
        let ips = &self.network.runtime.ips;
        match ips.iter().find(|ip| !has_prefix(ip)) {
            None => Ok(Addresses::requested(ips)),
            Some(ip) => {
                let message = format!("runtimeConfig.ips: {ip:?} is no address with a prefix");
                Err(CniError::new(Code::Config, message, "write it as 10.0.0.5/24"))
            }
        }
    }

    /// The VF of `deviceID`: `NIC/vfN`, or the PCI address of a VF of one of the daemon's cards.
    fn device(&self) -> Result<Option<VfOf>, CniError> {
        let Some(device) = self.network.device() else { return Ok(None) };
        let unknown = |remedy: &str| {
            let message = format!("deviceID {device} is no VF of a NIC of the daemon");
            CniError::new(Code::Config, message, remedy)
        };
        if let Some((nic, vf)) = device.split_once('/') {
            let index = vf.strip_prefix("vf").and_then(|index| index.parse().ok());
            let index = index.ok_or_else(|| unknown("write it as nic0/vf3"))?;
            return Ok(Some((nic.to_owned(), index)));
        }
        let (pf, index) = adapter::pf_of(Path::new(SYSFS), device)
            .ok_or_else(|| unknown("name the PCI address of a VF, as lspci -D lists it"))?;
        let actual = self.ask(Method::GET, "/v1/actual", None)?;
        let nics = actual["actual"]["nics"].as_array().cloned().unwrap_or_default();
        let nic = nics.iter().find(|nic| nic["card"]["address"] == pf.as_str());
        let nic = nic.and_then(|nic| nic["name"].as_str()).map(str::to_owned);
        let nic = nic.ok_or_else(|| unknown("make its card a NIC: shunt nic create --device"))?;
        Ok(Some((nic, index)))
    }

    /// Sets routes that are not default routes, which the daemon sets.
    fn set_routes(&self, addresses: &Addresses) -> Result<(), CniError> {
        let others = addresses.routes.iter().filter(|route| !route.is_default());
        let others: Vec<&Route> = others.collect();
        if others.is_empty() || self.network.kind() == Kind::VhostUser {
            return Ok(());
        }
        let interface = self.environment.place()?.interface;
        let set = || {
            let links = Links::open().map_err(|error| error.to_string())?;
            for route in others {
                let destination = destination(&route.dst).ok_or_else(|| route.dst.clone())?;
                let gateway = addresses.gateway(route);
                let added = links.add_route(interface, destination, gateway);
                added.map_err(|error| format!("{error}: {}", error.source))?;
            }
            Ok(())
        };
        let done = netns::within(Some(self.environment.netns()?), set);
        let done = done.map_err(|error| error.to_string()).and_then(|done| done);
        done.map_err(|error: String| {
            let message = format!("a route of the IPAM plugin cannot be set: {error}");
            CniError::new(Code::Io, message, "correct the routes of ipam")
        })
    }

    /// Describes the device for Multus and the pod (device-info specification 1.1).
    fn write_device_info(&self, made: &Value) -> Result<(), CniError> {
        let Some(file) = &self.network.runtime.device_info else { return Ok(()) };
        let Some(socket) = made["attachment"]["socket"].as_str() else { return Ok(()) };
        let info = json!({
            "type": "vhost-user", "version": DEVICE_INFO_VERSION,
            "vhost-user": {"mode": "client", "path": socket},
        });
        fs::write(file, info.to_string()).map_err(|error| {
            let message = format!("{file} cannot be written: {error}");
            CniError::new(Code::Io, message, "see its directory and permissions")
        })
    }

    /// Disconnects the container; one that is gone already is no error.
    fn del(&self) -> Result<(), CniError> {
        self.find(Method::DELETE, &self.path()?)?;
        if let Some(file) = &self.network.runtime.device_info {
            let _ = fs::remove_file(file); // it may not be there
        }
        match self.ipam()? {
            Some(ipam) => ipam.run("DEL").map(drop),
            None => Ok(()),
        }
    }

    /// Checks that the container is connected as it was by ADD.
    fn check(&self) -> Result<(), CniError> {
        if let Some(ipam) = self.ipam()? {
            ipam.run("CHECK")?;
        }
        let changed =
            |message: String| Err(CniError::new(Code::Changed, message, "add the container again"));
        let (place, netns) = (self.environment.place()?, self.environment.netns()?);
        let Some(adapter) = self.find(Method::GET, &self.path()?)? else {
            return changed(format!("interface {} has no adapter", place.interface));
        };
        let attachment = &adapter["attachment"];
        if attachment["interface"].is_string() {
            if attachment["netns"] != netns {
                return changed(format!(
                    "the interface is in {}, not {netns}",
                    attachment["netns"]
                ));
            }
            let find = || Links::open().and_then(|links| links.index(place.interface));
            match netns::within(Some(netns), find) {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return changed(error.to_string()),
                Err(error) => return changed(error.to_string()),
            }
        }
        let previous = self.network.previous.clone().unwrap_or_default();
        let interfaces = previous["interfaces"].as_array().cloned().unwrap_or_default();
        let number = interfaces
            .iter()
            .position(|it| it["name"] == place.interface && it["sandbox"] == netns);
        let Some(number) = number else {
            return changed(format!("prevResult has no interface {}", place.interface));
        };
        let macs = [&interfaces[number]["mac"], &adapter["mac"]];
        let [was, is] = macs.map(|mac| mac.as_str().unwrap_or_default().to_ascii_lowercase());
        if was != is {
            return changed(format!("the MAC address is {is}, not {was}"));
        }
        let has = attachment["ip"].as_array().cloned().unwrap_or_default();
        let ips = previous["ips"].as_array().cloned().unwrap_or_default();
        let lost = ips.iter().find(|ip| ip["interface"] == number && !has.contains(&ip["address"]));
        lost.map_or(Ok(()), |ip| changed(format!("{} is missing", ip["address"])))
    }

    /// Deletes the adapters of this network that no container has. Without a list of attachments,
    /// as of cnitool, nothing tells which these are, and nothing is deleted.
    fn gc(&self) -> Result<(), CniError> {
        if self.network.valid.is_none() {
            return Ok(());
        }
        let adapters = self.ask(Method::GET, "/v1/adapters", None)?;
        let adapters = adapters.as_array().cloned().unwrap_or_default();
        let left = adapters.iter().filter(|adapter| adapter::is_left(adapter, self.network));
        for name in left.filter_map(|adapter| adapter["name"].as_str()) {
            self.find(Method::DELETE, &format!("/v1/adapters/{name}"))?;
        }
        self.ask_new_ipam("GC")
    }

    /// Has the IPAM plugin do a command that version 1.1 has brought.
    fn ask_new_ipam(&self, command: &str) -> Result<(), CniError> {
        match self.ipam()?.filter(|_| self.network.version == "1.1.0") {
            Some(ipam) => ipam.run(command).map(drop),
            None => Ok(()),
        }
    }

    /// Fails unless the daemon has what containers of this network need.
    fn status(&self) -> Result<(), CniError> {
        let (what, path) = match (&self.network.switch, &self.network.nic) {
            (Some(switch), _) => (format!("switch {switch}"), format!("/v1/switches/{switch}")),
            (None, Some(nic)) => (format!("NIC {nic}"), format!("/v1/nics/{nic}")),
            (None, None) => ("a NIC".to_owned(), "/v1/nics".to_owned()),
        };
        let unavailable =
            |message: String, remedy: &str| Err(CniError::new(Code::Unavailable, message, remedy));
        match self.find(Method::GET, &path) {
            Ok(Some(_)) => {}
            Ok(None) => {
                return unavailable(format!("the daemon has no {what}"), "add it: shunt apply");
            }
            Err(error) => return unavailable(error.message().to_owned(), "start it: shunt up"),
        }
        self.ask_new_ipam("STATUS")
    }
}

/// Destination of a route, such as `10.96.0.0/12`.
fn destination(text: &str) -> Option<LinkAddress> {
    let (ip, prefix_len) = text.split_once('/').filter(|_| has_prefix(text))?;
    Some(LinkAddress { ip: ip.parse().ok()?, prefix_len: prefix_len.parse().ok()? })
}
