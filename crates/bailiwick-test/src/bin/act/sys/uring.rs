//! A submission ring, and operations on it: what other system calls do, without those calls.

use std::ffi::CStr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::files::terminated;
use super::{check, owned};

/// `struct io_uring_params` of `linux/io_uring.h`: ten words, then the offsets of both rings.
#[repr(C)]
#[derive(Default)]
struct Parameters {
    submission_entries: u32,
    completion_entries: u32,
    flags: u32,
    other: [u32; 7],
    submission: Offsets,
    completion: Offsets,
}

/// `struct io_sqring_offsets` and `struct io_cqring_offsets`: equal in size, different from word 5 on.
#[repr(C)]
#[derive(Default)]
struct Offsets {
    head: u32,
    tail: u32,
    ring_mask: u32,
    ring_entries: u32,
    /// Flags of the submission ring; overflow count of the completion ring.
    fifth: u32,
    /// Dropped entries; or the offset of the completion entries.
    sixth: u32,
    /// Offset of the submission array; or flags.
    seventh: u32,
    other: [u32; 3],
}

const ENTRIES: u32 = 4;
const OFFSET_SUBMISSION_RING: u64 = 0;
const OFFSET_COMPLETION_RING: u64 = 0x800_0000;
const OFFSET_ENTRIES: u64 = 0x1000_0000;

/// Sizes of `struct io_uring_sqe` and `struct io_uring_cqe`.
const SUBMISSION_SIZE: usize = 64;
const COMPLETION_SIZE: usize = 16;

const OPERATION_OPENAT: u8 = 18; // IORING_OP_OPENAT, Linux 5.6
const OPERATION_SETXATTR: u8 = 42; // IORING_OP_SETXATTR, Linux 5.19
const OPERATION_SOCKET: u8 = 45; // IORING_OP_SOCKET, Linux 5.19
const GET_EVENTS: u32 = 1; // IORING_ENTER_GETEVENTS

pub(crate) struct Ring {
    ring: OwnedFd,
    parameters: Parameters,
}

impl Ring {
    pub(crate) fn new() -> Result<Self, Errno> {
        let mut parameters = Parameters::default();
        // SAFETY: the call reads and writes one `struct io_uring_params` and returns a new descriptor or -1.
        let ring = unsafe { owned(libc::syscall(libc::SYS_io_uring_setup, ENTRIES, &raw mut parameters)) }?;
        Ok(Ring { ring, parameters })
    }

    /// Asks for an internet socket and returns the descriptor that the ring made.
    pub(crate) fn socket(&self) -> Result<OwnedFd, Errno> {
        let mut entry = [0_u8; SUBMISSION_SIZE];
        entry[0] = OPERATION_SOCKET;
        entry[4..8].copy_from_slice(&libc::AF_INET.to_ne_bytes()); // fd: the family
        entry[8..16].copy_from_slice(&i64::from(libc::SOCK_STREAM).to_ne_bytes()); // off: the type
        // SAFETY: a completed request for a socket without a slot returns a new descriptor.
        self.submit(entry).and_then(|number| unsafe { owned(number) })
    }

    /// Opens a file for appending.
    pub(crate) fn open_for_appending(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let path = terminated(path)?;
        let mut entry = [0_u8; SUBMISSION_SIZE];
        entry[0] = OPERATION_OPENAT;
        entry[4..8].copy_from_slice(&libc::AT_FDCWD.to_ne_bytes());
        entry[16..24].copy_from_slice(&address(&path)?);
        entry[28..32].copy_from_slice(&(libc::O_WRONLY | libc::O_APPEND).to_ne_bytes());
        // SAFETY: a completed request to open a file without a slot returns a new descriptor.
        self.submit(entry).and_then(|number| unsafe { owned(number) })
    }

    /// Sets the attribute `user.act` of a file.
    pub(crate) fn set_attribute(&self, path: &Path) -> Result<(), Errno> {
        let path = terminated(path)?;
        let mut entry = [0_u8; SUBMISSION_SIZE];
        entry[0] = OPERATION_SETXATTR;
        entry[8..16].copy_from_slice(&address(c"act")?); // addr2: the value
        entry[16..24].copy_from_slice(&address(c"user.act")?);
        entry[24..28].copy_from_slice(&3_u32.to_ne_bytes()); // len: of the value
        entry[48..56].copy_from_slice(&address(&path)?); // addr3
        self.submit(entry).map(drop)
    }

    /// Submits one request and returns its result. What the request points to must outlive this call.
    fn submit(&self, entry: [u8; SUBMISSION_SIZE]) -> Result<i32, Errno> {
        let submission = &self.parameters.submission;
        let completion = &self.parameters.completion;
        let ring_bytes = bytes(submission.seventh)? + bytes(self.parameters.submission_entries)? * 4;
        let submissions = self.map(ring_bytes, OFFSET_SUBMISSION_RING)?;
        let entries =
            self.map(bytes(self.parameters.submission_entries)? * SUBMISSION_SIZE, OFFSET_ENTRIES)?;
        let ring_bytes =
            bytes(completion.sixth)? + bytes(self.parameters.completion_entries)? * COMPLETION_SIZE;
        let completions = self.map(ring_bytes, OFFSET_COMPLETION_RING)?;

        // SAFETY: the mapping holds at least one entry, and the kernel reads it only after the tail moved.
        unsafe { entries.cast::<[u8; SUBMISSION_SIZE]>().write_volatile(entry) };
        let array = bytes(submission.seventh)?;
        // SAFETY: the array lies within the mapping by the offsets that the kernel gave.
        unsafe { submissions.byte_add(array).cast::<u32>().write_volatile(0) };
        let tail = bytes(submission.tail)?;
        // SAFETY: so does the tail, which is a word that kernel and program share as an atomic.
        unsafe { submissions.byte_add(tail).cast::<AtomicU32>().as_ref() }.store(1, Ordering::Release);

        // SAFETY: the call takes numbers and a null signal mask.
        let entered = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.ring.as_raw_fd(),
                1_u32,
                1_u32,
                GET_EVENTS,
                0_usize,
                0_usize,
            )
        };
        check(entered)?;
        let first = bytes(completion.sixth)?;
        // SAFETY: the call waited for one completion, which the kernel wrote into the first entry.
        let completed =
            unsafe { completions.byte_add(first).cast::<[u8; COMPLETION_SIZE]>().read_volatile() };
        let [_, _, _, _, _, _, _, _, a, b, c, d, _, _, _, _] = completed;
        match i32::from_ne_bytes([a, b, c, d]) {
            error if error < 0 => Err(Errno::from_raw_os_error(error.wrapping_neg())),
            result => Ok(result),
        }
    }

    /// Maps a part of the ring. It stays mapped until the process ends.
    fn map(&self, length: usize, offset: u64) -> Result<NonNull<u8>, Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a fresh mapping at an address of the kernel's choice takes nothing from anybody.
        let address =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, protection, flags, &self.ring, offset) }?;
        NonNull::new(address.cast()).ok_or(Errno::FAULT)
    }
}

/// The address of a text, as an entry holds it.
fn address(text: &CStr) -> Result<[u8; 8], Errno> {
    u64::try_from(text.as_ptr().expose_provenance()).map(u64::to_ne_bytes).map_err(|_| Errno::FAULT)
}

fn bytes(word: u32) -> Result<usize, Errno> {
    usize::try_from(word).map_err(|_| Errno::INVAL)
}
