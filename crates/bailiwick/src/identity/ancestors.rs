//! The chain of directories above an object, by descriptor.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::io::Errno;

use super::fault::Fault;
use super::object::{Key, Look, Node};
use super::resolve::{Place, name_of, open_canonical, open_parent, open_upwards, place_of};
use crate::error::SystemCall;

/// Directories above an object at most. A path has at most 2048 parts (`PATH_MAX` / 2), so twice that is never
/// reached by anything that a path names; it ends a walk up a tree that somebody grows while we climb.
const DEPTH_LIMIT: usize = 4096;

/// Climbs from objects to `/`, remembering what it has passed, so that a thousand siblings cost one climb.
///
/// # Security
/// What it remembers is true for a moment only: make a new one for each check.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// The directory above each directory passed. Whatever is a key here has its whole chain here.
    above: HashMap<Node, Node>,
}

impl Walk {
    /// The chain of a directory: itself, the directory above it, and so on to the root of this process.
    ///
    /// Where two mounts stack, `..` goes on from the mount point, as it does for a command. `name` serves the
    /// error only.
    ///
    /// # Errors
    /// `Covered` where a mount covers a directory of the chain with another one: `..` leads to what covers it, and
    /// nothing leads to the directory itself, which is the one that the kernel asks when it decides a write.
    pub(crate) fn chain(&mut self, dir: impl AsFd, name: &Path) -> Result<Vec<Node>, Fault> {
        let mut chain = vec![Look::at(&dir, name)?.id.node()];
        let mut held: Option<OwnedFd> = None;
        // Directories above the one that is held: one look each, instead of opening each.
        let mut up = 0;
        loop {
            let node = chain[chain.len() - 1];
            if self.above.contains_key(&node) {
                self.complete(&mut chain);
                break;
            }
            if chain.len() > DEPTH_LIMIT {
                return Err(Fault::TooDeep);
            }
            if up == STEPS {
                held = Some(open_above(held.as_ref().map_or(dir.as_fd(), AsFd::as_fd), up, name)?);
                up = 0;
            }
            let base = held.as_ref().map_or(dir.as_fd(), AsFd::as_fd);
            let above = match look_above(base, up + 1, name) {
                Ok(above) => {
                    up += 1;
                    above
                }
                Err(Fault::Denied(_)) => {
                    let here = if up == 0 { None } else { Some(open_above(base, up, name)?) };
                    let parent = parent_of(here.as_ref().map_or(base, AsFd::as_fd), name)?;
                    let above = Look::at(&parent, name)?.id.node();
                    let is_held = above.mount == node.mount
                        || holds(&parent, here.as_ref().map_or(base, AsFd::as_fd), node.key, name)?;
                    if !is_held {
                        return Err(Fault::Covered);
                    }
                    chain.push(above);
                    (held, up) = (Some(parent), 0);
                    continue;
                }
                Err(fault) => return Err(fault),
            };
            if above == node {
                break;
            }
            // On the way out of a mount, or onto one that covers the directory above.
            if above.mount != node.mount
                && !holds(&open_above(base, up, name)?, open_above(base, up - 1, name)?, node.key, name)?
            {
                return Err(Fault::Covered);
            }
            chain.push(above);
        }
        for pair in chain.windows(2) {
            self.above.insert(pair[0], pair[1]);
        }
        Ok(chain)
    }

    /// The chain of whatever holds an object now; empty when the name by which it was opened is gone.
    pub(crate) fn chain_of_place(&mut self, object: impl AsFd) -> Result<Vec<Node>, Fault> {
        match place_of(object)? {
            Place::In { dir, dir_path, .. } => self.chain(dir, &dir_path),
            Place::Nameless => Ok(Vec::new()),
        }
    }

    fn complete(&self, chain: &mut Vec<Node>) {
        let mut node = chain[chain.len() - 1];
        while let Some(above) = self.above.get(&node) {
            chain.push(*above);
            node = *above;
        }
    }
}

/// `..` as often as one look may climb.
const STEPS: usize = 64;
static UP: [[u8; 3]; STEPS] = [*b"../"; STEPS];

fn up(levels: usize) -> &'static Path {
    Path::new(OsStr::from_bytes(UP.get(..levels).unwrap_or(&UP).as_flattened()))
}

/// What is as many levels above a directory. `Denied` where this user may not search one of those on the way.
fn look_above(dir: BorrowedFd<'_>, levels: usize, name: &Path) -> Result<Node, Fault> {
    Ok(Look::entry(dir, up(levels), name)?.id.node())
}

fn open_above(dir: BorrowedFd<'_>, levels: usize, name: &Path) -> Result<OwnedFd, Fault> {
    // Without a step it is the directory itself.
    let path = if levels == 0 { Path::new(".") } else { up(levels) };
    open_upwards(dir, path)
        .map_err(|errno| Fault::from_call(SystemCall::new("openat2", name.join(up(levels)), errno)))
}

/// Whether a directory holds another under its present name. A directory is in one directory only, however many
/// mounts show that one.
fn holds(parent: &OwnedFd, dir: impl AsFd, key: Key, name: &Path) -> Result<bool, Fault> {
    let present = name_of(&dir)?;
    let Some(entry) = present.file_name() else { return Ok(false) };
    match Look::entry(parent, Path::new(entry), name) {
        Ok(found) => Ok(found.id.key() == key),
        Err(Fault::NotFound { .. }) => Ok(false),
        Err(fault) => Err(fault),
    }
}

fn parent_of(dir: impl AsFd, name: &Path) -> Result<OwnedFd, Fault> {
    match open_parent(dir.as_fd()) {
        Ok(parent) => Ok(parent),
        // `..` wants search permission on the directory itself, which a user may lack for one that is to be
        // protected. Its name leads to the directory above all the same, and looking back proves it.
        Err(Errno::ACCESS) => match place_of(&dir)? {
            Place::In { dir, .. } => Ok(dir),
            Place::Nameless => Err(Fault::Gone),
        },
        Err(errno) => Err(Fault::from_call(SystemCall::new("openat2", name.join(".."), errno))),
    }
}

/// The object at `path`, if `path` is there and has no link in it.
pub(crate) fn node_at(path: &Path) -> Result<Option<Node>, Fault> {
    match open_canonical(path) {
        Ok(fd) => Ok(Some(Look::at(&fd, path)?.id.node())),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(Fault::from_call(SystemCall::new("openat2", path, errno))),
    }
}
