//! The socket by which the kubelet finds the driver (`pluginregistration.Registration`).
//!
//! # Model
//! The kubelet dials this socket with an empty authority, which servers on the `h2` crate reject
//! (kubernetes/kubernetes#109081). So this is a server of its own for the two calls of the service.
//! It reads frames of HTTP/2 (RFC 9113) and no header: the message of `GetInfo` is empty, and that
//! of `NotifyRegistrationStatus` never is.
//!
//! # Limits
//! Frames of 16 KiB, the default of HTTP/2; 64 streams with an unfinished message.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use crate::proto::registration::{PluginInfo, RegistrationStatus};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const MAX_FRAME: usize = 16384;
const MAX_STREAMS: usize = 64;
/// Length of the prefix of a gRPC message: a flag of compression, and the message's length.
const PREFIX: usize = 5;

// Types and flags of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// `:status: 200` and `content-type: application/grpc` in HPACK (RFC 7541).
const HEAD: &[u8] = b"\x88\x0f\x10\x10application/grpc";
/// `grpc-status: 0`.
const TRAILERS: &[u8] = b"\x00\x0bgrpc-status\x010";

/// Answers all connections; `on_status` is called with each result of a registration.
pub async fn serve(
    listener: UnixListener,
    info: PluginInfo,
    on_status: impl Fn(RegistrationStatus) + Send + Sync + 'static,
) -> io::Result<()> {
    let (info, on_status) = (Arc::new(info), Arc::new(on_status));
    loop {
        let (stream, _) = listener.accept().await?;
        let (info, on_status) = (info.clone(), on_status.clone());
        // A connection that breaks is the kubelet's to repeat.
        tokio::spawn(async move { answer(stream, &info, &*on_status).await });
    }
}

/// Answers the calls of one connection, until it ends.
async fn answer(
    mut stream: UnixStream,
    info: &PluginInfo,
    on_status: &(dyn Fn(RegistrationStatus) + Send + Sync),
) -> io::Result<()> {
    let mut preface = [0; PREFACE.len()];
    stream.read_exact(&mut preface).await?;
    if preface != PREFACE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no connection of HTTP/2"));
    }
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    let mut bodies: HashMap<u32, Vec<u8>> = HashMap::new();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let [a, b, c, kind, flags, stream_id @ ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let id = u32::from_be_bytes(stream_id);
        if length > MAX_FRAME || bodies.len() > MAX_STREAMS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a limit is exceeded"));
        }
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await?;
        match kind {
            SETTINGS if flags & ACK == 0 => {
                stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await?;
            }
            PING if flags & ACK == 0 => {
                stream.write_all(&frame(PING, ACK, 0, &payload)).await?;
            }
            GOAWAY => return Ok(()),
            DATA => {
                let padding = if flags & PADDED == 0 { 0 } else { usize::from(payload[0]) };
                let start = usize::from(flags & PADDED != 0);
                let data = payload.get(start..length - padding).unwrap_or_default();
                let body = bodies.entry(id).or_default();
                body.extend_from_slice(&data[..data.len().min(MAX_FRAME - body.len())]);
            }
            _ => {}
        }
        if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            let body = bodies.remove(&id).unwrap_or_default();
            let message = respond(body.get(PREFIX..).unwrap_or_default(), info, on_status);
            let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
            let data = [&[0], &length[..], &message].concat();
            let frames = [
                frame(HEADERS, END_HEADERS, id, HEAD),
                frame(DATA, 0, id, &data),
                frame(HEADERS, END_HEADERS | END_STREAM, id, TRAILERS),
            ];
            stream.write_all(&frames.concat()).await?;
        }
    }
}

/// Message in response to that of a call.
fn respond(
    message: &[u8],
    info: &PluginInfo,
    on_status: &(dyn Fn(RegistrationStatus) + Send + Sync),
) -> Vec<u8> {
    if message.is_empty() {
        return info.encode_to_vec();
    }
    if let Ok(status) = RegistrationStatus::decode(message) {
        on_status(status);
    }
    Vec::new() // `RegistrationStatusResponse`
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    let mut frame = vec![a, b, c, kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}
