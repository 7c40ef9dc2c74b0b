//! The bpf(2) calls that a redirect program needs: maps, programs, links.
//!
//! Structures are those of `union bpf_attr`, linux/bpf.h. The kernel accepts any length, and treats
//! missing fields as zero.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use host::launcher::{Answer, Request, ask, check_index};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::asm::Instruction;

/// Bytes of the verifier's log requested.
const LOG_LEN: usize = 64 * 1024;
/// Bytes of it shown in an error: the last lines contain the cause.
const LOG_SHOWN: usize = 512;
/// Helpers that only GPL programs may call are not called.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";

#[derive(Clone, Copy)]
enum Command {
    MapCreate = 0,
    MapUpdateElem = 2,
    MapDeleteElem = 3,
    ProgLoad = 5,
    LinkCreate = 28,
}

/// Type of a map.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[repr(u32)]
pub(crate) enum MapKind {
    Hash = 1,
    Array = 2,
    Sockets = 17,
    /// Without keys and values; its number of entries is its size in bytes.
    Ring = 27,
}

/// Mode of attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u32)]
pub(crate) enum Attach {
    /// `XDP_FLAGS_SKB_MODE`.
    Generic = 1 << 1,
    /// `XDP_FLAGS_DRV_MODE`.
    Native = 1 << 2,
}

const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
/// The program takes frames in several fragments (`BPF_F_XDP_HAS_FRAGS`, Linux 5.18).
const HAS_FRAGS: u32 = 1 << 5;
/// Entries are allocated on insertion (`BPF_F_NO_PREALLOC`).
const NO_PREALLOC: u32 = 1;

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; 16],
}

#[repr(C)]
struct MapElem {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

/// # Safety
/// `T` must be the command's part of `union bpf_attr`. Its pointers must be readable (the log's
/// writable) for as many bytes as the command accesses.
unsafe fn bpf<T>(command: Command, attr: &mut T) -> Result<i32, Errno> {
    let attr: *mut T = attr;
    // SAFETY: the caller's promise; the size keeps the kernel inside `attr`.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command as i32, attr, size_of::<T>()) };
    if result < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(errno));
    }
    Ok(result as i32)
}

/// As [`bpf`], for commands that return a descriptor.
///
/// # Safety
/// As [`bpf`].
unsafe fn bpf_fd<T>(command: Command, attr: &mut T) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller's promise; the descriptor is new, with no other owner. The kernel makes
    // all of them close-on-exec.
    unsafe { bpf(command, attr).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

/// `name`, cut to the kernel's limit.
fn short(name: &str) -> [u8; 16] {
    let mut short = [0; 16];
    let len = name.len().min(15);
    short[..len].copy_from_slice(&name.as_bytes()[..len]);
    short
}

/// A map whose keys and values have fixed sizes.
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
    key_size: usize,
    value_size: usize,
}

impl Map {
    pub(crate) fn create(
        kind: MapKind,
        name: &str,
        key_size: usize,
        value_size: usize,
        entries: u32,
    ) -> Result<Map, Errno> {
        let name = name.to_owned();
        let sizes = [key_size as u32, value_size as u32, entries];
        let (_, fds) = ask(CreateMap { kind, name, sizes }, &[])?;
        let fd = fds.into_iter().next().ok_or(Errno::BADMSG)?;
        Ok(Map { fd, key_size, value_size })
    }

    /// Inserts or updates an entry.
    pub(crate) fn set(&self, key: &[u8], value: &[u8]) -> Result<(), Errno> {
        assert_eq!((key.len(), value.len()), (self.key_size, self.value_size));
        self.element(Command::MapUpdateElem, key, value.as_ptr() as u64)
    }

    /// Deletes an entry, if there is one.
    pub(crate) fn remove(&self, key: &[u8]) -> Result<(), Errno> {
        assert_eq!(key.len(), self.key_size);
        match self.element(Command::MapDeleteElem, key, 0) {
            Err(Errno::NOENT) => Ok(()),
            done => done,
        }
    }

    fn element(&self, command: Command, key: &[u8], value: u64) -> Result<(), Errno> {
        let map_fd = self.fd.as_raw_fd() as u32;
        let mut attr = MapElem { map_fd, pad: 0, key: key.as_ptr() as u64, value, flags: 0 };
        // SAFETY: key and value have the map's sizes, which the callers assert, and outlive this.
        unsafe { bpf(command, &mut attr).map(drop) }
    }
}

/// Most bytes of a map.
const MAP_BYTES_MAX: u64 = 64 << 20;

/// Creates a map.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateMap {
    kind: MapKind,
    name: String,
    /// Bytes of a key, bytes of a value, and entries.
    sizes: [u32; 3],
}

impl Request for CreateMap {
    const NAME: &'static str = "create-map";
    const DOES: &'static str = "creates a BPF map of one of four types, of up to 64 MiB";
    type Reply = ();

    fn check(&self, _: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let [key, value, entries] = self.sizes.map(u64::from);
        // The entries of a ring are its bytes.
        let bytes = key.saturating_add(value).max(1).saturating_mul(entries);
        if bytes > MAP_BYTES_MAX { Err(Errno::PERM) } else { Ok(()) }
    }

    fn serve(self, _: &[BorrowedFd<'_>]) -> Answer<()> {
        let [key_size, value_size, max_entries] = self.sizes;
        let mut attr = MapCreate {
            map_type: self.kind as u32,
            key_size,
            value_size,
            max_entries,
            map_flags: if matches!(self.kind, MapKind::Hash) { NO_PREALLOC } else { 0 },
            inner_map_fd: 0,
            numa_node: 0,
            map_name: short(&self.name),
        };
        // SAFETY: BPF_MAP_CREATE's part of the union, without pointers.
        Ok(((), vec![unsafe { bpf_fd(Command::MapCreate, &mut attr)? }]))
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Error of loading a program.
#[derive(Debug)]
pub(crate) struct LoadError {
    pub(crate) errno: Errno,
    /// The end of the verifier's log; empty if it was not requested.
    pub(crate) log: String,
}

/// Loads an XDP program. With `fragments` it takes frames in several fragments.
pub(crate) fn load(
    name: &str,
    code: &[Instruction],
    fragments: bool,
) -> Result<OwnedFd, LoadError> {
    let mut attr = ProgLoad {
        prog_type: PROG_TYPE_XDP,
        insn_cnt: code.len() as u32,
        insns: code.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: if fragments { HAS_FRAGS } else { 0 },
        prog_name: short(name),
        prog_ifindex: 0,
        expected_attach_type: ATTACH_TYPE_XDP,
    };
    // SAFETY: BPF_PROG_LOAD's part of the union; instructions and licence outlive the call.
    let errno = match unsafe { bpf_fd(Command::ProgLoad, &mut attr) } {
        Ok(fd) => return Ok(fd),
        Err(errno) => errno,
    };
    // Again, only for the log, which costs the verifier time.
    let mut log = vec![0; LOG_LEN];
    (attr.log_level, attr.log_size) = (1, LOG_LEN as u32);
    attr.log_buf = log.as_mut_ptr() as u64;
    // SAFETY: as above, and the log has the length given.
    let again = unsafe { bpf_fd(Command::ProgLoad, &mut attr) };
    again.map_err(|_| LoadError { errno, log: last_lines(&log) })
}

/// The end of a log, up to its first zero.
fn last_lines(log: &[u8]) -> String {
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let from = end.saturating_sub(LOG_SHOWN);
    String::from_utf8_lossy(&log[from..end]).trim().replace('\n', "; ")
}

/// Attaches a program to an interface of this network namespace, for the life of the result.
pub(crate) fn attach(
    program: BorrowedFd<'_>,
    interface: u32,
    how: Attach,
) -> Result<OwnedFd, Errno> {
    let (_, fds) = ask(AttachProgram { interface, how }, &[program])?;
    fds.into_iter().next().ok_or(Errno::BADMSG)
}

/// Attaches a program to an interface, while a descriptor is open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttachProgram {
    interface: u32,
    how: Attach,
}

impl Request for AttachProgram {
    const NAME: &'static str = "attach-program";
    const DOES: &'static str = "attaches an XDP program to an interface in a network namespace";
    const IN_NAMESPACE: bool = true;
    type Reply = ();

    fn check(&self, _: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        check_index("xdp", self.interface)
    }

    fn serve(self, fds: &[BorrowedFd<'_>]) -> Answer<()> {
        let [program] = fds else { return Err(Errno::INVAL) };
        let mut attr = LinkCreate {
            prog_fd: program.as_raw_fd() as u32,
            target_ifindex: self.interface,
            attach_type: ATTACH_TYPE_XDP,
            flags: self.how as u32,
        };
        // SAFETY: BPF_LINK_CREATE's part of the union, without pointers.
        Ok(((), vec![unsafe { bpf_fd(Command::LinkCreate, &mut attr)? }]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_sizes() {
        assert_eq!(size_of::<MapCreate>(), 44);
        assert_eq!(size_of::<MapElem>(), 32);
        assert_eq!(size_of::<ProgLoad>(), 72);
        assert_eq!(std::mem::offset_of!(ProgLoad, prog_name), 48);
        assert_eq!(size_of::<LinkCreate>(), 16);
    }

    #[test]
    fn a_log_shows_its_end() {
        let mut log = vec![b'x'; 2 * LOG_SHOWN];
        log.extend_from_slice(b"\nlast line\n\0garbage");
        let shown = last_lines(&log);
        assert!(shown.ends_with("x; last line"), "{shown}");
        assert!(shown.len() <= LOG_SHOWN);
        assert_eq!(last_lines(&[0; 8]), "");
    }

    #[test]
    fn names_are_cut() {
        assert_eq!(&short("a name that is too long"), b"a name that is \0");
    }
}
