//! Verdicts of a NIC's classifier, for bursts of any headers, against the model of its rules.

use bridge::nic::model::{self, Model, apply, with_second};
use bridge::nic::{
    ConfigError, Filter, Flows, Function, LinkState, Mode, NicConfig, PortVlan, Table, VlanProtocol,
};
use bridge::{Action, BURST, PortId, Summary, Verdicts, VlanEdit};
use wire::{HeaderSnapshot, Mac, Vid};

use crate::Reached;
use crate::input::Input;

/// Few addresses and VLANs, so that they meet.
const MACS: u32 = 24;
const VIDS: [u16; 3] = [1, 2, 4094];
const GROUPS: [Mac; 2] = [Mac([1, 0, 0x5e, 0, 0, 1]), Mac([0x33, 0x33, 0, 0, 0, 1])];

fn mac(input: &mut Input<'_>) -> Mac {
    Mac([2, 0, 0, 0, 0, input.below(MACS) as u8])
}

fn any_mac(input: &mut Input<'_>) -> Mac {
    match input.byte() {
        0..=200 => mac(input),
        201..=220 => Mac::BROADCAST,
        221..=240 => GROUPS[0],
        _ => Mac(std::array::from_fn(|_| input.byte())),
    }
}

fn vid(input: &mut Input<'_>) -> Vid {
    Vid::new(input.pick(&VIDS)).expect("a VLAN")
}

fn function(input: &mut Input<'_>) -> Option<Function> {
    let what = input.u16();
    let is_set = |bit: u16| what >> bit & 1 == 1;
    if is_set(0) && is_set(1) && is_set(2) {
        return None;
    }
    let trust = is_set(3);
    let trunk = if is_set(4) && is_set(5) { vec![vid(input)] } else { Vec::new() };
    let vlan = is_set(6).then(|| PortVlan {
        vid: vid(input),
        qos: input.byte() & 7,
        protocol: match is_set(7) && trunk.is_empty() {
            true => VlanProtocol::Ieee8021Ad,
            false => VlanProtocol::Ieee8021Q,
        },
    });
    Some(Function {
        extra_macs: (0..input.below(3)).map(|_| mac(input)).collect(),
        guest_macs: (0..input.below(2)).filter(|_| trust).map(|_| mac(input)).collect(),
        vlan,
        trunk: trunk.into_iter().collect(),
        spoof_check: is_set(8),
        trust,
        promiscuous: trust && is_set(9),
        all_multicast: trust && is_set(10),
        groups: is_set(11).then(|| GROUPS[..input.below(3) as usize].to_vec()),
        link: [LinkState::Auto, LinkState::Auto, LinkState::Enable, LinkState::Disable]
            [usize::from(what >> 12 & 3)],
        ..Function::new(mac(input))
    })
}

fn config(input: &mut Input<'_>) -> NicConfig {
    let what = input.byte();
    let functions = |n: u32, input: &mut Input<'_>| {
        (0..input.below(n)).map(|_| function(input)).collect::<Vec<_>>()
    };
    let has_switch = what & 1 == 1;
    let mut filter = |_| Filter { mac: mac(input), vid: input.pick(&[0, 1, 2, 4094]) };
    let switch = has_switch.then(|| (0..what >> 5).map(&mut filter).collect());
    NicConfig {
        pf: if has_switch { None } else { function(input) },
        vfs: functions(6, input),
        queues: functions(3, input),
        switch,
        mode: [Mode::Veb, Mode::Veb, Mode::Vepa, Mode::Isolated][usize::from(what >> 1 & 3)],
        uplink_up: what & 8 == 0,
        floods_unknown: what & 16 == 0,
        ..NicConfig::default()
    }
}

fn header(input: &mut Input<'_>) -> [u8; 16] {
    let (dst, src) = (any_mac(input), any_mac(input));
    let (kind, next) = match input.byte() {
        kind @ 0..=100 => (
            [0x8100, 0x8100, 0x88a8, 0x9100][usize::from(kind & 3)],
            u16::from(input.byte()) << 12 | input.pick(&[0, 1, 2, 4094, 4095]),
        ),
        101..=240 => (0x0800, 0x4500),
        _ => (input.u16(), input.u16()),
    };
    model::header(dst, src, Some((kind, next)))
}

/// `data` is a NIC, and bursts from its ports.
pub(crate) fn classifier(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let mut reached = Reached::default();
    let config = config(&mut input);
    let (table, model) = match (Table::build(&config), Model::new(&config)) {
        (Ok(table), Some(model)) => (table, model),
        (Err(ConfigError::DuplicateMac { .. }), None) => {
            reached.add("duplicate addresses", 1);
            return reached;
        }
        (Ok(_), None) => panic!("a duplicate address was accepted: {config:?}"),
        (Err(error), _) => panic!("{error}: {config:?}"),
    };
    let (mut flows, mut out) = (Flows::new(), Verdicts::new());
    while !input.is_empty() {
        let from = match input.below(11) {
            0 | 1 => PortId::UPLINK,
            2 | 3 => PortId::PF,
            n @ 4..=9 => PortId::vf(n as u8 - 4),
            _ => PortId::queue(0),
        };
        // Bursts of one flow, and of several.
        let mut headers = Vec::new();
        for _ in 0..1 + input.below(4) {
            let mut header = header(&mut input);
            if let (Some(function), 1..) = (config.function(from), input.byte() & 3) {
                header[6..12].copy_from_slice(&function.mac.0); // its own, mostly
            }
            headers.extend(vec![header; 1 + input.below(20) as usize]);
        }
        headers.truncate(BURST);
        let seconds = input.u64();
        let second = |n: usize| seconds >> (n % 64) & 1 == 1;
        let snapshots: Vec<HeaderSnapshot> =
            headers.iter().enumerate().map(|(n, header)| with_second(header, second(n))).collect();
        let summary =
            table.classify_with_snapshots(from, &headers, &snapshots, &mut flows, &mut out);
        let expected = headers.iter().enumerate();
        let expected: Vec<Action> =
            expected.map(|(n, header)| model.action(from, header, second(n))).collect();
        let actions: Vec<Action> = out.iter().map(|verdict| verdict.action()).collect();
        assert_eq!(actions, expected, "from {from}: {headers:02x?}");
        let is_same = actions.iter().all(|action| *action == actions[0]);
        assert_eq!(matches!(summary, Summary::Uniform(_)), is_same);
        for (header, action) in headers.iter().zip(&actions) {
            check_receivers(&table, &model, from, header, *action, &mut reached);
        }
    }
    reached
}

/// Frames go only to members of their VLAN, edited as the model does.
fn check_receivers(
    table: &Table,
    model: &Model<'_>,
    from: PortId,
    header: &[u8; 16],
    action: Action,
    reached: &mut Reached,
) {
    let vid = table.vid(from, header);
    let receivers: Vec<PortId> = match action {
        Action::Port(port) => vec![port],
        Action::Flood(_) => table.receivers(from, header).collect(),
        Action::Drop(_) => return reached.add("dropped", 1),
    };
    if matches!(action, Action::Flood(_)) {
        assert_eq!(receivers, model.receivers(from, header, vid));
        reached.add("flooded", 1);
    }
    reached.add("forwarded", 1);
    for to in receivers {
        assert!(to != from && model.is_in(to, vid) && model.is_up(to), "to {to} from {from}");
        let edit = table.edit_of(from, to, header);
        assert_eq!(apply(edit, header), model.edited(from, to, header));
        reached.add("edited", u64::from(edit != VlanEdit::None));
    }
}
