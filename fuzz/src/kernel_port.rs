//! Ports on descriptors of the kernel: one poll of a lane, and hand-over states.

use port::{BurstBuffers, OpenedDevice, Polled};

/// Frames of one poll, each with whether it must be dropped.
pub(crate) fn poll(device: &mut OpenedDevice) -> (Vec<(Vec<u8>, bool)>, Polled) {
    let transmit = device.pairs[0].transmit.as_mut();
    let mut buffers = BurstBuffers::default();
    let polled = transmit.poll(&mut buffers);
    let burst = transmit.burst(&buffers);
    assert_eq!(burst.frames.len(), polled.frames as usize);
    assert_eq!(burst.malformed.count_ones(), polled.malformed());
    let frame = |(i, frame): (usize, &guestmem::Buffer<'_>)| {
        let mut bytes = vec![0; frame.len as usize];
        frame.read_bytes(burst.arena, 0, &mut bytes);
        let header = burst.headers[i];
        let begin = bytes.len().min(header.len());
        assert_eq!(bytes[..begin], header[..begin], "classified by other bytes");
        assert!(header[begin..].iter().all(|byte| *byte == 0), "stale bytes behind a short frame");
        (bytes, burst.malformed >> i & 1 == 1)
    };
    let frames = burst.frames.iter().enumerate().map(frame).collect();
    if polled.frames > 0 {
        let _ = transmit.complete(); // there is no guest to notify
    }
    (frames, polled)
}

/// Numbers as in the state of a port that is handed over.
pub(crate) fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
