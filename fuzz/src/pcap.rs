//! Captures, pcap and pcapng, of any bytes.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use port::PortHandover;
use port::pcap::{Pace, PcapSpec, open, resume};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::Reached;
use crate::input::Input;
use crate::kernel_port::poll;

/// Bytes before the file: pace, number of repetitions, length of the hand-over state.
const SETTINGS: usize = 3;

/// `data` is settings, the state of a process that played the file before, and the file.
pub(crate) fn pcap(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let mut reached = Reached::default();
    let (pace, repeat, state_bytes) = (input.byte(), input.byte(), usize::from(input.byte()));
    let state = input.bytes(state_bytes).to_vec();
    let content = data.get(SETTINGS + state.len()..).unwrap_or_default();
    let file = memfd_create("capture", MemfdFlags::CLOEXEC).expect("a file in memory");
    let mut file = File::from(file);
    file.write_all(content).expect("a little memory");
    let spec = PcapSpec {
        file: PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())),
        sink: None,
        name: "fuzz".to_owned(),
        pace: match pace % 4 {
            0 => Pace::Recorded,
            1 => Pace::Mbps(1 + u32::from(pace)),
            2 => Pace::Pps(1 + u32::from(pace)),
            _ => Pace::Pps(u32::MAX),
        },
        repeat: u32::from(repeat),
    };
    let handover = PortHandover { fds: Vec::new(), state };
    match open(&spec) {
        Ok(device) => {
            reached.add("captures", 1);
            play(device, content, &mut reached);
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            reached.add("rejected", 1);
        }
    }
    if let Ok(device) = resume(&spec, handover) {
        reached.add("states taken over", 1);
        play(device, content, &mut reached);
    }
    reached
}

/// Polls some bursts: each frame is a part of the file.
fn play(mut device: port::OpenedDevice, content: &[u8], reached: &mut Reached) {
    for _ in 0..3 {
        let (frames, _) = poll(&mut device);
        for (frame, _) in frames {
            assert!(!frame.is_empty() && content.windows(frame.len()).any(|part| part == frame));
            reached.add("frames", 1);
        }
        let _ = device.pairs[0].transmit.enable_notification();
    }
    let state = device.pairs[0].transmit.handover_state();
    let housekeeping = device.housekeeping.as_mut().expect("a capture has work for control");
    housekeeping.handover(&[state]).expect("a capture is handed over");
}
