//! A proxy to a daemon that drops one request, or its reply.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The message that is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dropped {
    Request,
    Answer,
}

/// Listens, and forwards requests to the daemon until the `nth` one of that step, counted from 1.
pub(super) fn lossy_proxy(daemon: &Path, step: &'static str, nth: usize, lost: Dropped) -> PathBuf {
    let socket = daemon.with_file_name(format!("cut-{step}-{nth}-{lost:?}.sock"));
    let listener = UnixListener::bind(&socket).unwrap();
    let daemon = daemon.to_owned();
    // The thread ends with the process.
    std::thread::spawn(move || {
        let mut seen = 0;
        for mut client in listener.incoming().map_while(Result::ok) {
            let request = message(&mut client);
            let begins = request.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            let body: Value = serde_json::from_slice(&request[begins..]).unwrap_or_default();
            let is_it = body["step"] == step;
            seen += usize::from(is_it);
            if is_it && seen == nth && lost == Dropped::Request {
                continue;
            }
            let mut server = UnixStream::connect(&daemon).unwrap();
            server.write_all(&request).unwrap();
            let answer = message(&mut server);
            if !(is_it && seen == nth) {
                client.write_all(&answer).unwrap();
            }
        }
    });
    socket
}

/// Reads one HTTP message.
fn message(stream: &mut UnixStream) -> Vec<u8> {
    let (mut bytes, mut some) = (Vec::new(), [0; 65_536]);
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
            if bytes.len() == end + 4 + length {
                return bytes;
            }
        }
        let n = stream.read(&mut some).unwrap();
        assert_ne!(n, 0, "a message ends early");
        bytes.extend_from_slice(&some[..n]);
    }
}
