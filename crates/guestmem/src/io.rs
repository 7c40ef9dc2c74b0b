//! Reads and writes of files and sockets directly from and into shared memory.
//!
//! The kernel copies, with its own checks. If a guest changes the bytes or unmaps the memory
//! meanwhile, the call ends with EFAULT.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use crate::slice::GuestSlice;

/// Largest number of pieces in one message, and of messages in one call (Linux allows 1024).
const PIECES_MAX: usize = 1024;
/// Messages of one call.
pub const MESSAGES_MAX: usize = 64;
/// Bytes kept of a message's control data.
const CONTROL_LEN: usize = 64;

/// Bytes to write: of this process or of a guest.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Piece<'a>(libc::iovec, PhantomData<&'a ()>);

impl<'a> Piece<'a> {
    /// No bytes.
    pub const EMPTY: Piece<'static> =
        Piece(libc::iovec { iov_base: std::ptr::dangling_mut(), iov_len: 0 }, PhantomData);

    /// Bytes of this process.
    #[inline]
    pub fn bytes(bytes: &'a [u8]) -> Piece<'a> {
        let base = bytes.as_ptr().cast_mut().cast(); // only read: pieces are for writing
        Piece(libc::iovec { iov_base: base, iov_len: bytes.len() }, PhantomData)
    }

    /// Bytes of a guest.
    #[inline]
    pub fn slice(slice: GuestSlice<'a>) -> Piece<'a> {
        let base = slice.as_ptr().cast();
        Piece(libc::iovec { iov_base: base, iov_len: slice.len() as usize }, PhantomData)
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.iov_len
    }

    /// Returns `true` if there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iov_len == 0
    }
}

/// Writes all pieces in one call; returns the number of bytes written.
///
/// # Errors
/// The kernel's error; INVAL for more than 1024 pieces.
#[inline]
pub fn write(fd: BorrowedFd<'_>, pieces: &[Piece<'_>]) -> Result<usize, Errno> {
    if pieces.len() > PIECES_MAX {
        return Err(Errno::INVAL);
    }
    // SAFETY: a piece is an iovec (repr(transparent)) of bytes that are mapped for its lifetime,
    // which the borrow keeps; the kernel only reads them.
    let n = unsafe {
        libc::writev(fd.as_raw_fd(), pieces.as_ptr().cast(), pieces.len() as libc::c_int)
    };
    done(n)
}

/// Reads into a slice in one call, from anything but a socket; returns the number of bytes read.
///
/// # Errors
/// The kernel's error.
#[inline]
pub fn read(fd: BorrowedFd<'_>, room: GuestSlice<'_>) -> Result<usize, Errno> {
    // SAFETY: the slice is mapped and writable for its lifetime, and shared memory by nature.
    let n = unsafe { libc::read(fd.as_raw_fd(), room.as_ptr().cast(), room.len() as usize) };
    done(n)
}

/// Result of a read from a stream socket.
#[derive(Debug)]
pub struct Received {
    /// Bytes received; 0 at the end of the stream.
    pub bytes: usize,
    /// Descriptors received with the bytes. Closing one may wait for the peer: leave it to another
    /// thread.
    pub fds: Vec<OwnedFd>,
    /// `true` if this process had no room for some of the descriptors.
    pub fds_truncated: bool,
}

/// Receives from a stream socket into a slice in one call, without waiting. With read(2) the kernel
/// would close descriptors that accompany the bytes in this thread.
///
/// # Errors
/// The kernel's error.
#[inline]
pub fn receive(fd: BorrowedFd<'_>, room: GuestSlice<'_>) -> Result<Received, Errno> {
    let mut control = MaybeUninit::<Rights>::uninit();
    let mut piece = libc::iovec { iov_base: room.as_ptr().cast(), iov_len: room.len() as usize };
    // SAFETY: all zeros is a valid msghdr: null pointers, and lengths of 0.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut piece;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of::<Rights>() as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the slice is mapped and writable for the call, and shared memory by nature; the room
    // for control data has the length that is said.
    let n = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags) };
    let bytes = done(n)?;
    let fds_truncated = header.msg_flags & libc::MSG_CTRUNC != 0;
    let fds = if header.msg_controllen > 0 { rights(&header) } else { Vec::new() };
    Ok(Received { bytes, fds, fds_truncated })
}

/// Room for all descriptors that the kernel hands over at a time.
#[repr(C, align(8))]
struct Rights([u8; CMSG_LEN + RIGHTS_MAX * size_of::<libc::c_int>()]);

/// Bytes of a `cmsghdr`, aligned.
const CMSG_LEN: usize = size_of::<libc::cmsghdr>();
/// Largest number of descriptors that the kernel passes in one message (unix(7)).
const RIGHTS_MAX: usize = 253;

/// Descriptors from control messages that the kernel has just written.
#[cold]
fn rights(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the kernel wrote `msg_controllen` bytes of messages at `msg_control`, each with a
    // true length and type. Each descriptor is new and has no other owner.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(header);
        while let Some(message) = at.as_ref() {
            if (message.cmsg_level, message.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let count = (message.cmsg_len - CMSG_LEN) / size_of::<libc::c_int>();
                let data = libc::CMSG_DATA(at).cast::<libc::c_int>();
                fds.extend((0..count).map(|i| OwnedFd::from_raw_fd(data.add(i).read_unaligned())));
            }
            at = libc::CMSG_NXTHDR(header, at);
        }
    }
    fds
}

fn done(n: isize) -> Result<usize, Errno> {
    usize::try_from(n).map_err(|_| last())
}

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// A datagram to send.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Its bytes.
    pub pieces: &'a [Piece<'a>],
    /// Destination, as the kernel's `sockaddr`; empty on a connected or bound socket.
    pub to: &'a [u8],
}

/// Sends up to [`MESSAGES_MAX`] datagrams in one call, without waiting; returns the number sent.
///
/// # Errors
/// The kernel's error on the first; an error on a later one is returned by the next call.
pub fn send_many(fd: BorrowedFd<'_>, messages: &[Datagram<'_>]) -> Result<usize, Errno> {
    // SAFETY: all zeros is a valid mmsghdr: null pointers, and lengths of 0.
    let mut headers: [libc::mmsghdr; MESSAGES_MAX] = unsafe { std::mem::zeroed() };
    for (header, message) in headers.iter_mut().zip(messages) {
        let Datagram { pieces, to } = message;
        header.msg_hdr.msg_iov = pieces.as_ptr().cast_mut().cast();
        header.msg_hdr.msg_iovlen = pieces.len() as _;
        if !to.is_empty() {
            header.msg_hdr.msg_name = to.as_ptr().cast_mut().cast();
            header.msg_hdr.msg_namelen = to.len() as libc::socklen_t;
        }
    }
    let count = messages.len().min(MESSAGES_MAX) as libc::c_uint;
    // SAFETY: `count` headers were filled, with pieces and names that live for the call and are
    // only read.
    let n = unsafe {
        libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count, libc::MSG_DONTWAIT as _)
    };
    done(n as isize)
}

/// The room for datagrams that are received together.
pub struct DatagramReceiver {
    headers: Box<[libc::mmsghdr; MESSAGES_MAX]>,
    pieces: Box<[libc::iovec; MESSAGES_MAX]>,
    names: Box<[Name; MESSAGES_MAX]>,
    controls: Box<[Control; MESSAGES_MAX]>,
    received: usize,
}

type Name = [u8; size_of::<libc::sockaddr_in6>()];

/// Control messages, which the kernel aligns as words.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

// SAFETY: its pointers are set and used within one call, and point to its own boxes and to the
// slices of that call.
unsafe impl Send for DatagramReceiver {}

impl std::fmt::Debug for DatagramReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatagramReceiver").field("received", &self.received).finish_non_exhaustive()
    }
}

impl Default for DatagramReceiver {
    fn default() -> DatagramReceiver {
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        DatagramReceiver {
            // SAFETY: all zeros is a valid mmsghdr: null pointers, and lengths of 0.
            headers: Box::new(unsafe { std::mem::zeroed() }),
            pieces: Box::new([none; MESSAGES_MAX]),
            names: Box::new([[0; _]; MESSAGES_MAX]),
            controls: Box::new([Control([0; CONTROL_LEN]); MESSAGES_MAX]),
            received: 0,
        }
    }
}

impl DatagramReceiver {
    /// Receives a datagram into each of `rooms`, up to [`MESSAGES_MAX`], without waiting; returns
    /// the number received.
    ///
    /// # Errors
    /// The kernel's error, AGAIN if there are none.
    pub fn receive<'a>(
        &mut self,
        fd: BorrowedFd<'_>,
        rooms: impl Iterator<Item = GuestSlice<'a>>,
    ) -> Result<usize, Errno> {
        self.received = 0;
        let mut count = 0;
        for (i, room) in rooms.take(MESSAGES_MAX).enumerate() {
            self.pieces[i] =
                libc::iovec { iov_base: room.as_ptr().cast(), iov_len: room.len() as usize };
            let header = &mut self.headers[i].msg_hdr;
            header.msg_iov = &raw mut self.pieces[i];
            header.msg_iovlen = 1;
            header.msg_name = self.names[i].as_mut_ptr().cast();
            header.msg_namelen = size_of::<Name>() as libc::socklen_t;
            header.msg_control = self.controls[i].0.as_mut_ptr().cast();
            header.msg_controllen = CONTROL_LEN as _;
            header.msg_flags = 0;
            count += 1;
        }
        let (headers, wait) = (self.headers.as_mut_ptr(), libc::MSG_DONTWAIT as _);
        // SAFETY: `count` headers point to rooms that are mapped for the call, and to names and
        // controls of ours with their true lengths.
        let n =
            unsafe { libc::recvmmsg(fd.as_raw_fd(), headers, count, wait, std::ptr::null_mut()) };
        self.received = done(n as isize)?;
        Ok(self.received)
    }

    /// Length of the i-th datagram in bytes; larger than its room if it was truncated and the
    /// socket reports that.
    ///
    /// # Panics
    /// If fewer were received; the same for the methods below.
    #[inline]
    pub fn len(&self, i: usize) -> u32 {
        assert!(i < self.received);
        self.headers[i].msg_len
    }

    /// Returns `true` if the i-th datagram was truncated.
    pub fn is_truncated(&self, i: usize) -> bool {
        assert!(i < self.received);
        self.headers[i].msg_hdr.msg_flags & libc::MSG_TRUNC != 0
    }

    /// Source of the i-th datagram, as the kernel's `sockaddr`.
    pub fn from(&self, i: usize) -> &[u8] {
        assert!(i < self.received);
        let len = self.headers[i].msg_hdr.msg_namelen as usize;
        &self.names[i][..len.min(size_of::<Name>())]
    }

    /// Its control messages, as the kernel's `cmsghdr`s.
    pub fn control(&self, i: usize) -> &[u8] {
        assert!(i < self.received);
        let len = self.headers[i].msg_hdr.msg_controllen;
        &self.controls[i].0[..len.min(CONTROL_LEN)]
    }
}
