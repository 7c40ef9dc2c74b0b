//! The fuzz targets on stable Rust, with inputs that look random.

/// Splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let words = (0..length / 8 + 1).flat_map(|_| self.next().to_ne_bytes());
        words.take(length).collect()
    }
}

#[test]
fn messages_keep_every_promise() {
    let mut random = Random(1);
    let (mut starts, mut fds, mut resets) = (0, 0, 0);
    for _ in 0..5_000 {
        let length = 20 + random.next() as usize % 1500;
        let calls = fuzz_vhost_user::messages(&random.bytes(length));
        starts += calls.starts;
        fds += calls.fds;
        resets += calls.resets;
    }
    // Inputs that never get a ring to run would show nothing.
    assert!(starts > 5_000 && fds > 300 && resets > 1_000, "{starts} {fds} {resets}");
}

#[test]
fn frames_keep_the_limits() {
    let mut random = Random(2);
    let mut messages = 0;
    for _ in 0..2_000 {
        let mut data = Vec::new();
        for _ in 0..random.next() % 20 {
            // A message as it should be, but now and then for one byte, cut into pieces.
            let size = (random.next() % 64) as usize;
            let header = [random.next() as u32, 1, size as u32];
            let mut frame: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
            frame.extend(random.bytes(size));
            if random.next().is_multiple_of(8) {
                let at = random.next() as usize % frame.len();
                frame[at] = random.next() as u8;
            }
            let cut = random.next() as usize % frame.len();
            for piece in [&frame[..cut], &frame[cut..]] {
                data.push(piece.len() as u8);
                data.extend(piece);
            }
        }
        messages += fuzz_vhost_user::frames(&data);
    }
    assert!(messages > 5_000, "{messages}");
}
