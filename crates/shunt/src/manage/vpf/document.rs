//! Objects of a virtual PF in the daemon's document: its NIC, an adapter for each function, and its
//! own table.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::super::patch::list;
use super::missing;
use crate::complete;
use crate::error::UsageError;

/// Attachment of a virtual PF's functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Backend {
    /// Each on a vhost-user socket: frames go from guest to guest with one copy.
    VhostUser,
    /// Each on a stream socket, as QEMU's -netdev stream.
    Stream,
    /// Each on a tap that QEMU makes, and the daemon reaches by a packet socket.
    Tap,
}

/// Objects to make in the daemon.
#[derive(Debug, Args)]
#[command(next_help_heading = "In the daemon")]
pub(super) struct VpfArgs {
    /// Number of VFs, 0 to 7; igb has 7.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=7))]
    pub(super) vfs: Option<u16>,
    /// Device model of QEMU: virtio or igb.
    #[arg(long, add = complete::one_of("VpfModel"))]
    pub(super) model: Option<String>,
    /// NIC of its VFs; without it and --switch, the NIC of the same name, made if missing.
    #[arg(long, conflicts_with = "switch", add = complete::nic())]
    pub(super) nic: Option<String>,
    /// Switch of its functions.
    #[arg(long, add = complete::switch())]
    pub(super) switch: Option<String>,
    /// Attachment of its functions: vhost-user sockets, stream sockets, or taps that QEMU makes.
    /// [default: vhost-user; stream for igb]
    #[arg(long, value_enum)]
    pub(super) backend: Option<Backend>,
    /// Use a vhost-vdpa device of this host as a VF, as N=/dev/vhost-vdpa-N; repeatable.
    #[arg(long, value_name = "VF=DEVICE")]
    pub(super) vdpa: Vec<String>,
    /// Directory of its sockets. [default: the run directory]
    #[arg(long, value_name = "DIR")]
    pub(super) socket_dir: Option<PathBuf>,
    /// MAC address of the PF; those of VFs follow it. [default: derived from the name]
    #[arg(long, value_name = "MAC")]
    pub(super) mac: Option<String>,
    /// Queue pairs of each function.
    #[arg(long, value_name = "N")]
    pub(super) queue_pairs: Option<u64>,
    /// igb only: VLANs that its functions may use, such as 5,100-199.
    #[arg(long, value_name = "LIST")]
    pub(super) trunks: Option<String>,
    /// igb only: maximum rate of all its functions together, in Mbit/s.
    #[arg(long, value_name = "MBPS")]
    pub(super) max_tx_mbps: Option<u64>,
    /// No control channel for the guest to read and set its VFs.
    #[arg(long)]
    pub(super) no_control: bool,
    /// Settings that the guest may change: all, none, or some of mac, vlan, rate, spoof_check,
    /// trust, link_state.
    #[arg(long, value_name = "LIST", add = complete::list_of([&["all", "none"][..], &SETTINGS].concat()))]
    pub(super) grant: Option<String>,
    /// Prefix of addresses that the guest may set, such as 52:54:00.
    #[arg(long, value_name = "LIST")]
    pub(super) grant_macs: Option<String>,
    /// VLANs that the guest may set, such as 5,100-199.
    #[arg(long, value_name = "LIST")]
    pub(super) grant_vlans: Option<String>,
    /// Tag protocols allowed for those VLANs besides the host's: 802.1q, 802.1ad.
    #[arg(long, value_name = "LIST", add = complete::list_of(["802.1q", "802.1ad"]))]
    pub(super) grant_vlan_protos: Option<String>,
    /// VFs that the guest may set, such as 0,1; all for all.
    #[arg(long, value_name = "LIST")]
    pub(super) grant_vfs: Option<String>,
    /// Highest maximum rate that the guest may set, in Mbit/s.
    #[arg(long, value_name = "MBPS")]
    pub(super) grant_max_tx_mbps: Option<u64>,
    /// Highest guaranteed rate that the guest may set, in Mbit/s.
    #[arg(long, value_name = "MBPS")]
    pub(super) grant_min_tx_mbps: Option<u64>,
}

/// Number of VFs of QEMU's igb.
const IGB_VFS: u16 = 7;
/// All settings that can be granted.
const SETTINGS: [&str; 6] = ["mac", "vlan", "rate", "spoof_check", "trust", "link_state"];

/// Requested settings.
pub(super) struct VpfRequest<'a> {
    pub(super) name: String,
    pub(super) flags: &'a VpfArgs,
    pub(super) sockets: PathBuf,
    pub(super) vdpa: Vec<(u16, String)>,
}

/// Entry of a list with that name; made if missing.
fn entry<'d>(document: &'d mut Value, list: &str, name: &str) -> &'d mut Value {
    if !document[list].is_array() {
        document[list] = json!([]);
    }
    let at = document[list].as_array().into_iter().flatten().position(|one| one["name"] == name);
    let items = document[list].as_array_mut().expect("it is a list by now");
    let at = at.unwrap_or_else(|| {
        items.push(json!({ "name": name }));
        items.len() - 1
    });
    &mut items[at]
}

fn has(document: &Value, list: &str, name: &str) -> bool {
    document[list].as_array().into_iter().flatten().any(|one| one["name"] == name)
}

fn set(table: &mut Value, field: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        table[field] = value.into();
    }
}

impl VpfRequest<'_> {
    /// Returns `true` if any setting of the daemon's document is requested.
    pub(super) fn is_any(&self) -> bool {
        let VpfArgs { vfs, model, nic, switch, backend, vdpa, mac, queue_pairs, trunks, .. } =
            self.flags;
        let texts = [model, nic, switch, mac, trunks].into_iter().any(Option::is_some);
        texts
            || vfs.is_some()
            || backend.is_some()
            || !vdpa.is_empty()
            || queue_pairs.is_some()
            || self.asks_control()
            || self.flags.max_tx_mbps.is_some()
    }

    fn asks_control(&self) -> bool {
        let VpfArgs { grant, grant_macs, grant_vlans, grant_vlan_protos, grant_vfs, .. } =
            self.flags;
        let texts = [grant, grant_macs, grant_vlans, grant_vlan_protos, grant_vfs];
        let texts = texts.into_iter().any(Option::is_some);
        let rates = [self.flags.grant_max_tx_mbps, self.flags.grant_min_tx_mbps];
        texts || rates.into_iter().any(|rate| rate.is_some()) || self.flags.no_control
    }

    /// Writes the settings into the document. Settings without a flag stay.
    pub(super) fn put_into(&self, document: &mut Value) -> Result<()> {
        let name = &self.name;
        let is_new = !has(document, "vpf", name);
        let vpf = entry(document, "vpf", name).clone();
        let model = self.flags.model.as_deref().or(vpf["model"].as_str()).unwrap_or("virtio");
        let igb = model == "igb";
        let known = vpf["vf"].as_array().map_or(0, Vec::len) as u16;
        let vfs = match (self.flags.vfs, igb) {
            (Some(vfs), true) if vfs != IGB_VFS => {
                let message = format!("is not allowed: igb has {IGB_VFS} VFs");
                return Err(UsageError::option("--vfs", vfs, &message, "leave it out").into());
            }
            (_, true) => 0,
            (Some(vfs), false) => vfs,
            (None, false) if is_new => {
                return Err(missing(name, "give --vfs to make it").into());
            }
            (None, false) => known,
        };
        if let Some((vf, _)) = self.vdpa.iter().find(|(vf, _)| *vf >= vfs) {
            let message = format!("is no VF of {name}, which has {vfs} VFs");
            let remedy = "name a VF with a lower number, or raise --vfs";
            return Err(UsageError::option("--vdpa", *vf, &message, remedy).into());
        }
        let pf = vpf["pf"].as_str().map_or_else(|| format!("{name}-pf"), str::to_owned);
        let place = self.place(document, &pf, vfs)?;
        let behind: Vec<Value> =
            (0..vfs).map(|vf| self.behind(&vpf["vf"][usize::from(vf)], vf)).collect();
        let functions =
            std::iter::once((0, pf.clone(), "pf".to_owned())).chain((0..vfs).filter_map(|vf| {
                let adapter = behind[usize::from(vf)]["adapter"].as_str()?.to_owned();
                Some((vf + 1, adapter, format!("vf{vf}")))
            }));
        for (number, adapter, short) in functions.collect::<Vec<_>>() {
            self.adapter(document, (&adapter, &short), number, (&place, igb))?;
        }
        let before = vpf["vf"].clone();
        let table = entry(document, "vpf", name);
        set(table, "model", Some(model));
        set(table, "pf", Some(pf));
        set(table, "vf", Some(behind.clone()));
        self.control(table)?;
        // Adapters of removed VFs.
        let gone = before.as_array().into_iter().flatten().filter(|vf| !behind.contains(vf));
        let gone: Vec<String> =
            gone.filter_map(|vf| vf["adapter"].as_str().map(str::to_owned)).collect();
        remove_adapters(document, &gone, name);
        Ok(())
    }

    /// Field and name of the adapters' switch or NIC. Without either flag, makes the NIC if it is
    /// missing.
    fn place(&self, document: &mut Value, pf: &str, vfs: u16) -> Result<(&'static str, String)> {
        if let Some(switch) = &self.flags.switch {
            return Ok(("switch", switch.clone()));
        }
        if let Some(nic) = &self.flags.nic {
            if !has(document, "nic", nic) {
                let names = complete::names(&document["nic"]);
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let known = names.iter().copied();
                return Err(UsageError::meant("--nic", nic, "is no NIC", known, &names).into());
            }
            return Ok(("nic", nic.clone()));
        }
        if has(document, "adapter", pf) {
            let pf = entry(document, "adapter", pf);
            for on in ["switch", "nic"] {
                if let Some(of) = pf[on].as_str() {
                    return Ok((on, of.to_owned()));
                }
            }
        }
        let nic = self.name.clone();
        if !has(document, "nic", &nic) {
            let table = entry(document, "nic", &nic);
            set(table, "total_vfs", Some(vfs + 1));
            set(table, "num_vfs", Some(vfs + 1));
        }
        Ok(("nic", nic))
    }

    /// Attachment of a VF: the present one, unless another is requested.
    fn behind(&self, known: &Value, vf: u16) -> Value {
        match self.vdpa.iter().find(|(of, _)| *of == vf) {
            Some((_, device)) => json!({ "vhost_vdpa": device }),
            None if known.is_object() => known.clone(),
            None => json!({ "adapter": format!("{}-vf{vf}", self.name) }),
        }
    }

    /// Adapter of a function; an existing one keeps settings without a flag.
    fn adapter(
        &self,
        document: &mut Value,
        (name, short): (&str, &str),
        number: u16,
        ((on, of), igb): (&(&'static str, String), bool),
    ) -> Result<()> {
        let is_new = !has(document, "adapter", name);
        let adapter = entry(document, "adapter", name);
        if is_new {
            set(adapter, "iov_weight", Some(100));
        }
        if let Some(fields) = adapter.as_object_mut() {
            fields.retain(|field, _| !["nic", "switch"].contains(&field.as_str()));
        }
        set(adapter, on, Some(of.as_str()));
        let asked = self.flags.mac.as_deref();
        if is_new || asked.is_some() {
            let first = asked.map_or_else(|| Ok(base(&self.name)), mac)?;
            set(adapter, "mac", Some(nth(first, number)));
            if igb {
                let others: Vec<String> = (1..=IGB_VFS).map(|vf| nth(first, vf)).collect();
                set(adapter, "macs", Some(others));
            }
        }
        if is_new || self.flags.backend.is_some() {
            let usual = if igb { Backend::Stream } else { Backend::VhostUser };
            adapter["attachment"] = self.attachment(self.flags.backend.unwrap_or(usual), short);
        }
        if let Some(pairs) = self.flags.queue_pairs {
            adapter["attachment"]["queue_pairs"] = pairs.into();
        }
        if igb {
            set(adapter, "trunks", self.flags.trunks.as_deref().map(list));
            set(adapter, "max_tx_mbps", self.flags.max_tx_mbps);
        } else if self.flags.trunks.is_some() || self.flags.max_tx_mbps.is_some() {
            let option = if self.flags.trunks.is_some() { "--trunks" } else { "--max-tx-mbps" };
            let remedy = "set each adapter (shunt adapter set)";
            return Err(UsageError::option(option, (), "is for igb", remedy).into());
        }
        Ok(())
    }

    fn attachment(&self, backend: Backend, short: &str) -> Value {
        let name = &self.name;
        let socket = || self.sockets.join(format!("{name}-{short}.sock")).display().to_string();
        match backend {
            Backend::VhostUser => json!({"kind": "vhost-user", "socket": socket()}),
            Backend::Stream => json!({"kind": "stream", "socket": socket()}),
            Backend::Tap => json!({"kind": "packet", "interface": format!("{name}-{short}")}),
        }
    }

    fn control(&self, vpf: &mut Value) -> Result<()> {
        if self.flags.no_control {
            vpf.as_object_mut().map(|fields| fields.remove("control"));
            return Ok(());
        }
        if !vpf["control"].is_object() {
            let socket = self.sockets.join(format!("{}.ctl", self.name));
            vpf["control"] = json!({ "socket": socket.display().to_string() });
        }
        let control = &mut vpf["control"];
        let granted = self.flags.grant.as_deref().map(|grant| match grant {
            "all" => json!(SETTINGS),
            some => list(some),
        });
        set(control, "settings", granted);
        set(control, "mac_prefixes", self.flags.grant_macs.as_deref().map(list));
        set(control, "vlans", self.flags.grant_vlans.as_deref().map(list));
        set(control, "vlan_protos", self.flags.grant_vlan_protos.as_deref().map(list));
        set(control, "max_tx_mbps", self.flags.grant_max_tx_mbps);
        set(control, "min_tx_mbps", self.flags.grant_min_tx_mbps);
        match self.flags.grant_vfs.as_deref() {
            Some("all") => drop(control.as_object_mut().map(|fields| fields.remove("vfs"))),
            Some(some) => {
                let number = |text: &str| {
                    let number = text.trim().parse::<u64>();
                    number.map_err(|_| {
                        let remedy = "write all, or VF numbers such as 0,1";
                        UsageError::option("--grant-vfs", text, "is no VF number", remedy)
                    })
                };
                let vfs = some.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
                set(control, "vfs", Some(vfs));
            }
            None => {}
        }
        Ok(())
    }
}

/// Removes a virtual PF from a document, with the adapters and the NIC that were made for it.
pub(super) fn remove(document: &mut Value, name: &str) -> Result<()> {
    let vpfs = document["vpf"].as_array_mut();
    let at = vpfs.as_ref().and_then(|vpfs| vpfs.iter().position(|vpf| vpf["name"] == name));
    let Some((vpfs, at)) = vpfs.zip(at) else {
        return Err(missing(name, "see shunt vpf").into());
    };
    let vpf = vpfs.remove(at);
    let vfs = vpf["vf"].as_array().into_iter().flatten();
    let adapters = std::iter::once(&vpf["pf"]).chain(vfs.map(|vf| &vf["adapter"]));
    let adapters: Vec<String> = adapters.filter_map(|it| it.as_str().map(str::to_owned)).collect();
    remove_adapters(document, &adapters, name);
    let on_it =
        |list: &str| document[list].as_array().into_iter().flatten().any(|it| it["nic"] == name);
    if !on_it("adapter")
        && !on_it("switch")
        && let Some(nics) = document["nic"].as_array_mut()
    {
        nics.retain(|nic| nic["name"] != name || !nic["uplink"].is_null() || !nic["pf"].is_null());
    }
    Ok(())
}

/// Removes those adapters that have the virtual PF's name, and their ports; others existed before
/// it.
fn remove_adapters(document: &mut Value, adapters: &[String], of: &str) {
    let ours = |name: &str| {
        let short = name.strip_prefix(of).and_then(|rest| rest.strip_prefix('-'));
        short.is_some() && adapters.iter().any(|adapter| adapter == name)
    };
    let is_ours = |value: &Value| value.as_str().is_some_and(ours);
    if let Some(all) = document["adapter"].as_array_mut() {
        all.retain(|adapter| !is_ours(&adapter["name"]));
    }
    for switch in document["switch"].as_array_mut().into_iter().flatten() {
        if let Some(ports) = switch["port"].as_array_mut() {
            ports.retain(|port| !is_ours(&port["adapter"]));
        }
    }
}

/// Default address of the PF: locally administered, and practically unique for each name.
fn base(name: &str) -> [u8; 6] {
    // FNV-1a, so that it is the same in every version.
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let [a, b, c, d, ..] = name.bytes().fold(0xcbf2_9ce4_8422_2325, step).to_le_bytes();
    // The last byte leaves room for the VFs.
    [0x02, a, b, c, d, 0]
}

fn mac(text: &str) -> Result<[u8; 6], UsageError> {
    let wrong = || {
        let remedy = "write six hex pairs, such as 52:54:00:12:34:00";
        UsageError::option("--mac", text, "is not allowed", remedy)
    };
    let pairs: Vec<u8> = text
        .split(':')
        .map(|pair| u8::from_str_radix(pair, 16).ok().filter(|_| pair.len() == 2))
        .collect::<Option<_>>()
        .ok_or_else(wrong)?;
    pairs.try_into().map_err(|_| wrong())
}

/// Address of function `number`.
fn nth(base: [u8; 6], number: u16) -> String {
    let [a, b, c, rest @ ..] = base;
    let low = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) + u32::from(number);
    let [_, d, e, f] = low.to_be_bytes();
    [a, b, c, d, e, f].map(|byte| format!("{byte:02x}")).join(":")
}
