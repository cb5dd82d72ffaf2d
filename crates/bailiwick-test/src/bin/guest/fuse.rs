//! A file system of two directories, served by a thread of this program: `/lost`, which is another object at every
//! lookup though its number stays the same, and `/kept`, which is not. What is made in them exists, and holds nothing.
//!
//! # Source
//! `linux/fuse.h`, protocol 7.31, as little of it as a session needs.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;

use crate::boot::put;

const ROOT: u64 = 1;
/// Node and inode number of `/kept`, and the inode number of `/lost`.
const KEPT: u64 = 2;
const LOST: u64 = 3;
/// Nodes of `/lost` count up from here, those of files from far above.
const FIRST: u64 = 1000;
const FILES: u64 = 1 << 40;

const DIRECTORY: u32 = 0o040_777;
const REGULAR: u32 = 0o100_666;

/// Mounts it and serves it for as long as this program runs.
pub(crate) fn serve(at: &str) {
    let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
    // By the name of a type that keeps what it holds on another machine: one that may show this one's directories is
    // refused before anything is tried.
    put("lookups", at, "fuse.sshfs", &CString::new(options).unwrap());
    std::thread::spawn(move || Server { device, lookups: FIRST, files: BTreeSet::new() }.run());
}

struct Server {
    device: File,
    lookups: u64,
    /// Directory and name.
    files: BTreeSet<(u64, Vec<u8>)>,
}

/// What a request is answered with: nothing at all, an error, or bytes.
type Answer = Option<Result<Vec<u8>, i32>>;

impl Server {
    fn run(mut self) {
        let mut request = vec![0_u8; 1 << 17];
        loop {
            let length = self.device.read(&mut request).unwrap();
            let (head, body) = request[..length].split_at(40);
            let (operation, unique, node) = (number(head, 4, 4), number(head, 8, 8), number(head, 16, 8));
            let Some(answer) = self.answer(operation, node, body) else { continue };
            let (error, bytes) = match answer {
                Ok(bytes) => (0, bytes),
                Err(error) => (-error, Vec::new()),
            };
            let mut reply = Vec::new();
            reply.extend_from_slice(&u32::try_from(16 + bytes.len()).unwrap().to_ne_bytes());
            reply.extend_from_slice(&error.to_ne_bytes());
            reply.extend_from_slice(&unique.to_ne_bytes());
            reply.extend_from_slice(&bytes);
            self.device.write_all(&reply).unwrap();
        }
    }

    fn answer(&mut self, operation: u64, node: u64, body: &[u8]) -> Answer {
        let directory = inode(node);
        Some(match operation {
            1 => self.lookup(directory, name(body)),
            2 | 42 => return None, // forget, by one and by many
            3 => Ok([vec![0; 16], attributes(node)].concat()),
            4 => Ok([vec![0; 16], attributes(node)].concat()), // set attributes: none is kept
            10 => match self.files.remove(&(directory, name(body).to_vec())) {
                true => Ok(Vec::new()),
                false => Err(libc::ENOENT),
            },
            14 | 27 => Ok(vec![0; 16]),                  // open a file, a directory
            16 => Ok([&body[16..20], &[0; 4]].concat()), // write: all of it
            17 => Ok(vec![0; 80]),                       // about the file system
            18 | 25 | 29 => Ok(Vec::new()),              // release a file, flush, release a directory
            26 => Ok(begin()),
            28 => Ok(Vec::new()), // list a directory: nothing in it
            35 => {
                let name = name(&body[16..]).to_vec();
                self.files.insert((directory, name));
                Ok([entry(FILES), vec![0; 16]].concat())
            }
            _ => Err(libc::ENOSYS),
        })
    }

    fn lookup(&mut self, directory: u64, name: &[u8]) -> Result<Vec<u8>, i32> {
        match (directory, name) {
            (ROOT, b"kept") => Ok(entry(KEPT)),
            (ROOT, b"lost") => {
                self.lookups += 1;
                Ok(entry(self.lookups))
            }
            _ if self.files.contains(&(directory, name.to_vec())) => Ok(entry(FILES)),
            _ => Err(libc::ENOENT),
        }
    }
}

/// An entry that is to be looked up anew each time.
fn entry(node: u64) -> Vec<u8> {
    [node.to_ne_bytes().to_vec(), vec![0; 32], attributes(node)].concat()
}

/// The number of the object, which stays the same.
fn inode(node: u64) -> u64 {
    if (FIRST..FILES).contains(&node) { LOST } else { node }
}

fn attributes(node: u64) -> Vec<u8> {
    let mode = if node >= FILES { REGULAR } else { DIRECTORY };
    // Number; size, blocks, three times; their fractions; mode, links, owner, group, device, size of blocks, flags.
    let words: [u32; 7] = [mode, 1, 0, 0, 0, 4096, 0];
    let words = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    [inode(node).to_ne_bytes().to_vec(), vec![0; 52], words].concat()
}

/// The version, the largest write, the unit of times; no extension.
fn begin() -> Vec<u8> {
    let words: [u32; 16] = [7, 31, 1 << 16, 0, 0, 1 << 16, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    bytes[at..at + length].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn name(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap()
}
