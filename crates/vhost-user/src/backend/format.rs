//! The format of each request: payload size and number of descriptors.
//!
//! Checked in one place before any handler sees the message.

use std::mem::size_of;

use zerocopy::FromBytes;

use crate::message::{Message, Request, TABLE_REGIONS_MAX};
use crate::payload::{
    ConfigHeader, Inflight, LogArea, RegionPayload, SingleRegion, StateTransfer, TableHeader,
    VRING_NO_FD, VringAddr, VringState,
};

use super::error::Reason;

/// Checks size and descriptors of a message.
pub(super) fn check(request: Request, message: &Message) -> Result<(), Reason> {
    let payload = payload_size(request, message)?;
    if message.payload.len() != payload {
        return Err(Reason::PayloadSize { expected: payload, got: message.payload.len() });
    }
    let fds = fd_count(request, message);
    // vhost-user.rst, REM_MEM_REG: "For compatibility with existing incorrect implementations,
    // the back-end MAY accept messages with one file descriptor."
    let excused = request == Request::RemMemReg && message.fds.len() == 1;
    if message.fds.len() != fds && !excused {
        return Err(Reason::FdCount { expected: fds, got: message.fds.len() });
    }
    Ok(())
}

/// The payload size that this request must have, from its own header.
fn payload_size(request: Request, message: &Message) -> Result<usize, Reason> {
    use Request::*;
    Ok(match request {
        SetFeatures | SetProtocolFeatures | SetVringKick | SetVringCall | SetVringErr
        | SendRarp | NetSetMtu | SetStatus => size_of::<u64>(),
        SetVringNum | SetVringBase | GetVringBase | SetVringEnable => size_of::<VringState>(),
        SetVringAddr => size_of::<VringAddr>(),
        SetLogBase => size_of::<LogArea>(),
        AddMemReg | RemMemReg => size_of::<SingleRegion>(),
        SetDeviceStateFd => size_of::<StateTransfer>(),
        GetInflightFd | SetInflightFd => match message.payload.len() {
            Inflight::UNPADDED => Inflight::UNPADDED,
            _ => size_of::<Inflight>(),
        },
        SetMemTable => {
            let table: TableHeader = prefix(message)?;
            // Before the multiplication, which could overflow on 32 bits.
            if table.count as usize > TABLE_REGIONS_MAX {
                return Err(Reason::TooManyRegions { got: table.count });
            }
            size_of::<TableHeader>() + table.count as usize * size_of::<RegionPayload>()
        }
        GetConfig | SetConfig => {
            let config: ConfigHeader = prefix(message)?;
            size_of::<ConfigHeader>().saturating_add(config.size as usize)
        }
        _ => 0,
    })
}

fn fd_count(request: Request, message: &Message) -> usize {
    use Request::*;
    match request {
        SetMemTable => prefix(message).map_or(0, |table: TableHeader| table.count as usize),
        AddMemReg | SetLogBase | SetBackendReqFd | SetInflightFd | SetDeviceStateFd => 1,
        SetVringKick | SetVringCall | SetVringErr => {
            prefix(message).map_or(0, |value: u64| usize::from(value & VRING_NO_FD == 0))
        }
        _ => 0,
    }
}

/// Reads the fixed structure at the start of a payload.
pub(super) fn prefix<T: FromBytes>(message: &Message) -> Result<T, Reason> {
    match T::read_from_prefix(&message.payload) {
        Ok((value, _)) => Ok(value),
        Err(_) => Err(Reason::PayloadSize { expected: size_of::<T>(), got: message.payload.len() }),
    }
}
