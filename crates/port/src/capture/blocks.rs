//! Blocks of pcapng, built in memory.

use std::borrow::Cow;
use std::time::Duration;

use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption, InterfaceTsResolution,
};
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::pcapng::blocks::opt_common::CommonOption;
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::{PcapNgWriteError, PcapNgWriter};
use pcap_file::{DataLink, Endianness};

/// Blocks of one section.
pub(super) struct Blocks {
    writer: PcapNgWriter<Vec<u8>>,
    interfaces: u32,
}

/// A frame and what is known of it.
#[derive(Default)]
pub(super) struct PacketBlock<'a> {
    pub(super) interface: u32,
    pub(super) time_ns: u64,
    /// Bytes of the frame before it was cut.
    pub(super) len: u32,
    pub(super) data: &'a [u8],
    /// Frames missing before this one.
    pub(super) missed: u64,
    /// Value of `epb_flags`; 0 for none.
    pub(super) flags: u32,
    pub(super) comments: &'a [String],
}

impl Blocks {
    /// Begins a section.
    pub(super) fn begin(endianness: Endianness) -> Result<Blocks, PcapNgWriteError> {
        let section = SectionHeaderBlock {
            endianness,
            options: vec![SectionHeaderOption::UserApplication("shunt".into())],
            ..SectionHeaderBlock::default()
        };
        let writer = PcapNgWriter::with_section_header(Vec::new(), section)?;
        Ok(Blocks { writer, interfaces: 0 })
    }

    /// Describes an Ethernet interface with times in ns; returns its number.
    pub(super) fn interface(&mut self, name: &str, snap_len: u32) -> Result<u32, PcapNgWriteError> {
        self.writer.write_pcapng_block(InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: snap_len,
            options: vec![
                InterfaceDescriptionOption::IfName(name.into()),
                InterfaceDescriptionOption::IfTsResol(InterfaceTsResolution::NANO),
            ],
        })?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Adds a frame.
    pub(super) fn packet(&mut self, packet: &PacketBlock<'_>) -> Result<(), PcapNgWriteError> {
        let PacketBlock { interface, time_ns, len, data, missed, flags, comments } = *packet;
        let comment = |text: &'_ String| {
            EnhancedPacketOption::Common(CommonOption::Comment(text.clone().into()))
        };
        let mut options: Vec<EnhancedPacketOption<'_>> = comments.iter().map(comment).collect();
        options.extend((flags > 0).then_some(EnhancedPacketOption::Flags(flags)));
        options.extend((missed > 0).then_some(EnhancedPacketOption::DropCount(missed)));
        self.writer.write_pcapng_block(EnhancedPacketBlock {
            interface_id: interface,
            timestamp: Duration::from_nanos(time_ns),
            original_len: len,
            data: Cow::Borrowed(data),
            options,
        })?;
        Ok(())
    }

    /// Adds the totals of the section so far, at interface 0: frames, and frames missing.
    pub(super) fn totals(
        &mut self,
        time_ns: u64,
        [frames, missed]: [u64; 2],
    ) -> Result<(), PcapNgWriteError> {
        self.writer.write_pcapng_block(InterfaceStatisticsBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(time_ns),
            options: vec![
                InterfaceStatisticsOption::IsbIfRecv(frames + missed),
                InterfaceStatisticsOption::IsbIfDrop(missed),
            ],
        })?;
        Ok(())
    }

    /// Number of interfaces.
    pub(super) fn interfaces(&self) -> u32 {
        self.interfaces
    }

    /// Bytes so far.
    pub(super) fn bytes(&self) -> &[u8] {
        self.writer.get_ref()
    }

    /// The bytes, to cut or take.
    pub(super) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        self.writer.get_mut()
    }
}
