//! Working buffers of a lane.

use crate::burst::{BURST, HeaderBytes, HeaderSnapshot, NetHeader};
use crate::software_offload::OffloadScratch;

/// Working buffers for one burst. A lane has a pair, one for each direction, and lends them to the
/// ring that it serves. So many rings use no more of its L1 cache than one.
#[derive(Debug)]
pub struct BurstBuffers {
    pub(crate) stage: virtq::StagingBuffers,
    pub(crate) headers: Box<[HeaderBytes; BURST]>,
    /// As long as a burst, or empty before the first use.
    pub(crate) snapshots: Vec<HeaderSnapshot>,
    pub(crate) offloads: Box<[NetHeader; BURST]>,
    pub(crate) scratch: OffloadScratch,
}

impl Default for BurstBuffers {
    fn default() -> BurstBuffers {
        let headers = Box::new([[0; 16]; BURST]);
        BurstBuffers {
            stage: virtq::StagingBuffers::default(),
            headers,
            snapshots: vec![HeaderSnapshot::EMPTY; BURST],
            offloads: Box::new([NetHeader::PLAIN; BURST]),
            scratch: OffloadScratch::default(),
        }
    }
}
