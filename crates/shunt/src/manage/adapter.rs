//! `shunt adapter`.

use anyhow::Result;
use api::Method;
use clap::{Args, Subcommand};
use model::state::Problem;
use serde_json::{Value, json};

use super::cells::{cell, entries, find, rates, told_of, warn_of_device, with_actual};
use super::client::{ChangeArgs, DaemonArgs, encode_segment, must_be_new, release_path};
use super::patch::{FunctionFlags, Number, Patch, attachment_help, list as items, or_none};
use crate::complete;
use crate::error::UsageError;
use crate::flat::Fields;
use crate::pages::Title;
use crate::text::table;

/// Show and change adapters: the network adapters of guests.
#[derive(Debug, Args)]
#[command(add = Title("network adapters of virtual machines and containers"))]
#[command(after_help = "\
Examples:
  shunt adapter list                      each adapter's path, and the reason
  shunt adapter create web --switch sw0 --mac 02:00:00:00:00:01 --socket /run/shunt/web.sock
  shunt adapter set web --attachment tap:web0 --netns blue --ip 10.0.0.2/24
  shunt adapter set web --iov-weight 100  give it a VF, if one is free
  shunt adapter set web --path synthetic  move it to the switch, without loss
  shunt adapter delete web")]
pub(crate) struct Adapters {
    #[command(flatten)]
    target: DaemonArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List all adapters with their path, and the reason if it is not the requested one.
    #[command(add = Title("table of network adapters and their paths"))]
    #[command(after_help = "\
Examples:
  shunt adapter list")]
    List,
    /// Show one adapter, as in a file for `shunt apply`.
    #[command(add = Title("one network adapter, as in a state file"))]
    #[command(after_help = "\
Examples:
  shunt adapter show web")]
    Show {
        /// Name of the adapter.
        #[arg(add = complete::adapter())]
        adapter: String,
    },
    /// Create an adapter.
    #[command(add = Title("a new network adapter of a guest"))]
    #[command(after_help = "\
Examples:
  shunt adapter create web --switch sw0 --mac 02:00:00:00:00:01 --socket /run/shunt/web.sock")]
    Create(Box<Create>),
    /// Change some settings of an adapter; the others stay.
    #[command(add = Title("settings of a network adapter"))]
    #[command(after_help = "\
Examples:
  shunt adapter set web --iov-weight 100 --vlan 7
  shunt adapter set db --netns db --ip 10.0.0.2/24,fd00::2/64 --gateway 10.0.0.1
  shunt adapter set web --trunks 5,100-199 --spoof-check off --mirror-to probe
  shunt adapter set web --path synthetic --dry-run")]
    Set {
        /// Name of the adapter.
        #[arg(add = complete::adapter())]
        adapter: String,
        #[command(flatten)]
        settings: Box<Settings>,
        #[command(flatten)]
        how: ChangeArgs,
    },
    /// Remove an adapter, and the settings of its port.
    #[command(add = Title("removal of a network adapter"))]
    #[command(after_help = "\
Examples:
  shunt adapter delete web
  shunt adapter delete web --owner 17")]
    Delete {
        /// Name of the adapter.
        #[arg(add = complete::adapter())]
        adapter: String,
        /// Only if this is still the token of its VF's owner (`shunt vf list --json`).
        #[arg(long, value_name = "TOKEN")]
        owner: Option<u64>,
        #[command(flatten)]
        how: ChangeArgs,
    },
}

#[derive(Debug, Args)]
struct Create {
    /// Name: 1 to 63 letters, digits, dots, - and _.
    adapter: String,
    /// Switch of the adapter.
    #[arg(long, conflicts_with = "nic", add = complete::switch())]
    switch: Option<String>,
    /// NIC of the adapter, without a switch; then a VF is its only path.
    #[arg(long, add = complete::nic())]
    nic: Option<String>,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    how: ChangeArgs,
}

#[derive(Debug, Args)]
struct Settings {
    /// MAC address.
    #[arg(long)]
    mac: Option<String>,
    #[arg(long, value_name = "KIND:PLACE", conflicts_with = "socket",
        add = complete::attachment(), help = attachment_help("Attachment of its guest"))]
    attachment: Option<String>,
    /// Another field of the attachment, such as netns=blue, lists with commas; none for its
    /// default; repeatable.
    #[arg(long, value_name = "FIELD=VALUE", add = complete::attachment_field())]
    attachment_set: Vec<String>,
    /// Vhost-user socket of its guest, an absolute path.
    #[arg(long, value_name = "PATH")]
    socket: Option<String>,
    /// Listening side of the socket: server (the daemon listens) or client.
    #[arg(long, add = complete::one_of("SocketMode"))]
    mode: Option<String>,
    /// Queue pairs, each a receive and a transmit queue.
    #[arg(long, value_name = "N")]
    queue_pairs: Option<Number>,
    /// MTU of the guest, in bytes.
    #[arg(long, value_name = "BYTES")]
    mtu: Option<Number>,
    /// Network namespace of a tap or of a VF's interface, by name or path; a tap then outlives the
    /// daemon. none for the daemon's own.
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,
    /// IP addresses of this interface with their prefix lengths, separated by commas; none for
    /// none.
    #[arg(long, value_name = "ADDRESSES")]
    ip: Option<String>,
    /// Gateways of this interface, one for IPv4 and one for IPv6, separated by a comma; none for
    /// none.
    #[arg(long, value_name = "ADDRESSES")]
    gateway: Option<String>,
    #[command(flatten)]
    own: FunctionFlags,
    /// Priority for getting a VF, 0 to 100; 0 for none.
    #[arg(long, value_name = "W")]
    iov_weight: Option<Number>,
    /// Priority for getting a receive queue of the NIC, 0 to 100; 0 for none.
    #[arg(long, value_name = "W")]
    vmq_weight: Option<Number>,
    /// Requested path: vf, vmq, synthetic, or auto to follow its traffic.
    #[arg(long, add = complete::one_of("WantedPath"))]
    path: Option<String>,
    /// Requested VF, by number; any for a free one.
    #[arg(long, value_name = "N", add = complete::vf())]
    vf: Option<String>,
}

impl Settings {
    fn patch(&self) -> Patch {
        let vf = self.vf.as_deref().map(|text| match text {
            "any" => Value::Null,
            number => number.parse::<u64>().map_or_else(|_| Value::from(number), Value::from),
        });
        let patch = Patch::default()
            .set("mac", self.mac.as_deref())
            .attachment("attachment", self.attachment.as_deref(), &self.attachment_set)
            .socket("attachment", self.socket.as_deref())
            .set("attachment.mode", self.mode.as_deref())
            .set("attachment.queue_pairs", self.queue_pairs.clone())
            .set("attachment.mtu", self.mtu.clone())
            .set("attachment.netns", self.netns.as_deref().map(or_none))
            .set("attachment.ip", self.ip.as_deref().map(items))
            .set("attachment.gateway", self.gateway.as_deref().map(items))
            .set("iov_weight", self.iov_weight.clone())
            .set("vmq_weight", self.vmq_weight.clone())
            .set("path", self.path.as_deref())
            .set("vf", vf);
        self.own.patch(patch)
    }

    /// Warns of an adapter whose device is missing, such as an interface of a network namespace
    /// that does not exist yet; and of one that did not get the path it was just set to. Tells what
    /// a device differs in.
    fn warn(&self, target: &DaemonArgs, adapter: &str, how: &ChangeArgs) -> Result<()> {
        if target.json {
            return Ok(());
        }
        let answer = target.get("/v1/actual")?;
        let actual = find(&answer["actual"]["adapters"], "name", &json!(adapter));
        warn_of_device(&format!("adapter {adapter}"), &actual["device"]);
        let wanted = self.path.as_deref().or(self.vf.as_ref().map(|_| "vf"));
        let Some(wanted @ ("vf" | "vmq")) = wanted else { return Ok(()) };
        if how.dry_run || actual["path"] == *wanted {
            return Ok(());
        }
        let reason = cell(&actual["reason"]);
        let remedy = match (reason.as_str(), wanted) {
            ("WeightZero", "vf") => "; set --iov-weight",
            ("WeightZero", _) => "; set --vmq-weight",
            _ => "",
        };
        let path = cell(&actual["path"]);
        eprintln!("warning: adapter {adapter} is on path {path}, not {wanted}: {reason}{remedy}");
        Ok(())
    }
}

impl Adapters {
    pub(crate) fn run(self) -> Result<()> {
        let target = &self.target;
        let path = |adapter: &str| format!("/v1/adapters/{}", encode_segment(adapter));
        match &self.command {
            Command::List => list(target),
            Command::Show { adapter } => target.show_object("adapter", &path(adapter), |actual| {
                let adapter = find(&actual["adapters"], "name", &json!(adapter));
                told_of("attachment", &adapter["device"])
            }),
            Command::Create(create) => {
                let Create { adapter, switch, nic, settings, how } = &**create;
                let body = settings
                    .patch()
                    .set("switch", switch.as_deref())
                    .set("nic", nic.as_deref())
                    .finish();
                must_be_new(target, &path(adapter))?;
                if body.get("attachment").is_none() {
                    let remedy = "give --socket PATH, or --attachment KIND:PLACE such as tap:web0";
                    let problem = Problem::new("--socket", (), "is missing", remedy);
                    return Err(UsageError::from(problem.of(format!("adapter {adapter}"))).into());
                }
                let done = format!("created adapter {adapter}");
                target.change(Method::PUT, &path(adapter), Some(&body), how, &done)?;
                settings.warn(target, adapter, how)
            }
            Command::Set { adapter, settings, how } => {
                let body = settings.patch().finish_for(format!("adapter {adapter}"))?;
                let done = format!("changed adapter {adapter}");
                target.change(Method::PATCH, &path(adapter), Some(&body), how, &done)?;
                settings.warn(target, adapter, how)
            }
            Command::Delete { adapter, owner, how } => {
                let path = release_path(path(adapter), *owner);
                let done = format!("deleted adapter {adapter}");
                target.change(Method::DELETE, &path, None, how, &done)
            }
        }
    }
}

/// Cells of an adapter's path in force and of the reason for it, from `/v1/actual`.
pub(crate) fn path_and_reason(actual: &Value) -> [String; 2] {
    let path = match (actual["vf"].as_u64(), actual["queue"].as_u64()) {
        (Some(vf), _) => format!("vf {vf}"),
        (_, Some(queue)) => format!("vmq {queue}"),
        _ => cell(&actual["path"]),
    };
    let reason = match actual["reason"].as_str() {
        Some("Supported") | None => "-".to_owned(),
        Some(code) => code.to_owned(),
    };
    [path, reason]
}

fn list(target: &DaemonArgs) -> Result<()> {
    let (wished, actual) = (target.get("/v1/adapters")?, target.get("/v1/actual")?);
    let joined: Vec<Value> = entries(&wished)
        .map(|adapter| {
            let in_force = find(&actual["actual"]["adapters"], "name", &adapter["name"]);
            with_actual(adapter, in_force)
        })
        .collect();
    let fields = || Fields::of("Adapter").with("actual", "ActualAdapter");
    target.show_list(fields, &joined, |joined| {
        let row = |wanted: &Value| {
            let actual = &wanted["actual"];
            let [place, reason] = path_and_reason(actual);
            let on = if wanted["switch"].is_null() { &wanted["nic"] } else { &wanted["switch"] };
            // `adapter show` has the reason: it may be as long as an error of the kernel's.
            let guest = match &actual["device"]["state"] {
                Value::Null => actual["guest"].as_str().unwrap_or("absent").to_owned(),
                state => cell(state),
            };
            let link = match actual["link_up"].as_bool() {
                Some(true) => "up",
                Some(false) => "down",
                None => "-",
            };
            let (vlan, rates) = (cell(&wanted["vlan"]["id"]), rates(wanted));
            let (name, mac) = (cell(&wanted["name"]), cell(&wanted["mac"]));
            [name, cell(on), mac, vlan, rates, place, reason, link.to_owned(), guest]
        };
        let header = ["adapter", "on", "MAC", "VLAN", "Mbit/s", "path", "why", "link", "guest"];
        table(header, joined.iter().map(row).collect())
    })
}
