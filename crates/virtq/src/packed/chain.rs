//! Chains of a packed ring.

use guestmem::Ticket;

use super::{PackedPosition, PackedRing, Word};
use crate::chain::{Chain, Table};
use crate::fault::Fault;
use crate::ring::Descriptor;

/// Appends the buffer whose first descriptor is `first`: a list of at most `room` descriptors, or
/// one indirect table. "Buffer ID ... is included in the last descriptor in the list" (section
/// 2.8.6).
pub(super) fn follow(
    ring: &PackedRing,
    chain: &mut Chain<'_>,
    (mut at, mut word): (PackedPosition, Word),
    room: u16,
) -> Result<Ticket, Fault> {
    let longest = chain.format.longest().min(room.into());
    let mut descriptors = 0;
    loop {
        let (addr, len, flags) = (ring.addr(at.index()), word.len(), word.flags());
        descriptors += 1;
        let piece = Descriptor { addr, len, flags, next: 0 };
        if flags & Descriptor::INDIRECT != 0 {
            // "A driver MUST NOT write direct descriptors with VIRTQ_DESC_F_INDIRECT set in a
            // scatter-gather list linked by VIRTQ_DESC_F_NEXT" (section 2.8.17).
            if descriptors > 1 {
                return Err(Fault::BadIndirect);
            }
            follow_table(chain, piece)?;
        } else {
            chain.append(piece)?;
        }
        if flags & Descriptor::NEXT == 0 {
            return Ok(Ticket { id: word.id(), descriptors });
        }
        if usize::from(descriptors) >= longest {
            return Err(Fault::ChainTooLong);
        }
        at = at.advance(1, ring.size());
        word = ring.word(at.index());
    }
}

/// Appends all entries of a table, in their order: there are no links in it, and of their flags
/// only that of the direction has a meaning (section 2.8.7).
fn follow_table(chain: &mut Chain<'_>, outer: Descriptor) -> Result<(), Fault> {
    let table = Table::new(chain, outer)?;
    if usize::from(table.entries) > chain.format.longest() {
        return Err(Fault::ChainTooLong);
    }
    for index in 0..table.entries {
        let [addr, word] = table.words(index);
        let (len, flags) = (Word(word).len(), Word(word).flags());
        if flags & Descriptor::INDIRECT != 0 {
            return Err(Fault::BadIndirect); // a table inside a table
        }
        chain.append(Descriptor { addr, len, flags, next: 0 })?;
    }
    Ok(())
}
