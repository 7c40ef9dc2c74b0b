//! Guests that come and go during a soak: two kernels that copy a file by TCP.

use std::net::Ipv4Addr;

use anyhow::{Result, bail, ensure};
use traffic::protocol::sockets::{NetNamespace, SocketLoad, SocketRole, SocketSpec};
use traffic::{Event, Task};

use super::plan::PATH;
use crate::bench::{AdapterPlan, BenchAttachment, GuestProcess, SwitchedBench, mac_text};

/// Adapters of server and client.
pub(super) const TAPS: [usize; 2] = [super::plan::ADAPTERS, super::plan::ADAPTERS + 1];
/// Address of the server; that of the client is the next one.
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 1);
/// Bytes of each read and write.
const CHUNK: u32 = 128 << 10;

/// A copy of a file between two network namespaces, which end with their processes.
pub(super) struct Copy {
    mib: u32,
    server: GuestProcess,
    client: GuestProcess,
}

impl Copy {
    /// Adds both adapters, and starts the copy.
    pub(super) fn start(bench: &SwitchedBench, cpu: Option<usize>, mib: u32) -> Result<Copy> {
        let start = |end: usize, part| {
            let ip = Ipv4Addr::from_bits(SERVER.to_bits() + end as u32);
            let room = NetNamespace::Own { ip, mac: mac_text(TAPS[end], 0).to_string() };
            let load = SocketLoad { tcp: true, streams: 1, bytes: CHUNK, buffer: None };
            let task = Task::Sockets(SocketSpec { cpu, room, part, load });
            GuestProcess::start_task(bench.bench.program(), &task)
        };
        let mut server = start(0, SocketRole::Serve(mib))?;
        let mut client = start(1, SocketRole::Fetch(SERVER))?;
        for (number, guest) in TAPS.into_iter().zip([&server, &client]) {
            let attached = BenchAttachment::Tap { of: guest.pid() };
            bench.add(number, &AdapterPlan { attached, mac: mac_text(number, 0), path: PATH })?;
        }
        server.go()?;
        client.go()?;
        server.begin()?;
        server.go()?;
        Ok(Copy { mib, server, client })
    }

    /// Waits for the end of the copy, checks it, and removes the adapters.
    pub(super) fn finish(mut self, bench: &SwitchedBench) -> Result<()> {
        let (fetched, served) = match (self.client.hear()?, self.server.hear()?) {
            (Event::Fetched(fetched), Event::Served(served)) => (fetched, served),
            other => bail!("the ends of a copy said {other:?}"),
        };
        let bytes = u64::from(self.mib) << 20;
        ensure!(fetched.bytes == bytes, "a copy has {} of {bytes} bytes", fetched.bytes);
        ensure!(fetched.checksum == served.checksum, "a copy of {bytes} bytes has wrong ones");
        TAPS.into_iter().try_for_each(|number| bench.remove(number))
    }
}
