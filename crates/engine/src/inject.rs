//! Frames of our own, sent in a guest's name.

use guestmem::{Buffer, Pages, SharedFile};
use host::standing::Standing;
use port::Burst;

use crate::forward::{Scratch, Source};
use crate::port::Port;
use crate::scene::{Place, Scene};
use crate::stages::StageClock;
use crate::walk::{Charges, NicWay, Storm, SwitchWay, View, Walk};

/// Delivers a frame that no guest sent to all members of the VLAN of the port that it is to come
/// from; says how many received it.
pub(crate) fn inject(scene: &Scene, from: &Port, frame: &[u8]) -> usize {
    let Some(place) = scene.place(from) else { return 0 };
    let Ok(file) = SharedFile::create("shunt-inject", frame.len() as u64, Pages::Ordinary) else {
        return 0;
    };
    let Some(slice) = file.mapping().slice(0, frame.len()) else {
        return 0;
    };
    slice.write_bytes(frame);
    let mut head = [0; 16];
    slice.read_bytes(&mut head);
    let frames = [Buffer::single(slice, 0)];
    let heads = [head];
    let (frames, offloads) = (&frames[..], &[][..]);
    let burst = Burst { heads: &heads, deep: &[], frames, arena: &[], offloads, malformed: 0 };
    let standing = Standing::default(); // nobody watches this thread
    let (standing, stages) = (&standing, &StageClock::off());
    let source = Source { scene, port: from, pair: 0, standing, stages };
    // What is counted of the sender has one writer at a time: whoever holds this.
    let _silence = from.silence(0);
    let charges = Charges::new(Storm::None);
    let walk = Walk::new(source, &burst, &charges, crate::clock::now_ns(), false);
    let view = View::of(&burst);
    let mut scratch = Scratch::new();
    match (place, &scene.switch) {
        (Place::Function(id), _) => {
            let mut way = NicWay {
                switch: Some((&mut scratch.switch, &mut scratch.hop)),
                receive: &mut scratch.receive,
            };
            walk.flood_nic(id, &view, 0, &mut way)
        }
        // A port whose link is down is none of the switch's, and in no VLAN there.
        (Place::Switch(id), Some(switch)) if switch.table.has(id) => {
            let mut way = SwitchWay {
                nic: Some((&mut scratch.nic, &mut scratch.hop)),
                receive: &mut scratch.receive,
            };
            walk.flood_switch(switch, id, &view, (0, vswitch::Flood::Group), &mut way)
        }
        (Place::Piped(id), _) => {
            let (heads, deep) = (burst.heads, [wire::DeepHead::of_frame(frame)]);
            scene.table.sort(id, heads, &deep, &mut scratch.fates);
            let mut fates = scratch.fates.as_slice().to_vec();
            // No check of the source, as everywhere here.
            let spoofed = nic::Fate::Drop(nic::DropReason::SpoofedMac);
            fates.iter_mut().filter(|it| **it == spoofed).for_each(|it| *it = nic::Fate::Slow);
            walk.leave_function(id, &view, &fates, &mut scratch.receive)
        }
        (Place::Switch(_) | Place::Representor(_), _) => 0,
    }
}
