//! The broker: makes connections on behalf of commands, to named sockets only where they may write.
//!
//! No layer of the kernel judges `connect(2)` by the name of a socket: a read-only mount does not, and Landlock
//! does not. So the filter asks, and this process answers. It never lets the kernel go on with the call of the
//! command, which could have changed address or descriptor since: it takes a copy of the command's socket, a copy
//! of its address, looks the name up once, and connects that socket to what it found.
//!
//! One broker serves all processes under one filter, which is one launcher and what came of it. It is made by the
//! session's launcher, so it lies in the session's domain of scopes: an abstract socket outside of it is refused
//! to the broker as to the command. It lies in the grant's mount view, so a path means what it means to a command.
//! It is in no filter and no domain of files, and does for a command nothing but this.
//!
//! A command can kill it, as it can kill every process of the session. Then calls wait; the worker, which holds
//! the listener too, makes another broker.

mod caller;
mod name;
mod pool;

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use crate::launcher::hello;
use crate::sys::{self, Channel, Errno, Questions};

/// The broker serves: its second message to the worker.
pub(crate) const SERVES: u8 = 205;

/// What it is made with: channel, listener, memory of the questions, namespace and root of the mount view.
pub(crate) const DESCRIPTORS: usize = 5;

/// What a broker works with.
struct Broker {
    listener: OwnedFd,
    /// The mounts of the view on which something can be written, by their numbers. Nobody can change the view:
    /// commands cannot mount, and it is private. A mount of another view, reached through a descriptor that was
    /// passed on, is not among them; nor is one that is made by itself (autofs).
    writable: HashSet<u64>,
    questions: Questions,
}

/// Serves, with [`DESCRIPTORS`].
pub(crate) fn run(kept: Vec<OwnedFd>) -> ! {
    let Ok([socket, listener, memory, namespace, root]) = <[OwnedFd; DESCRIPTORS]>::try_from(kept) else {
        sys::exit_now(1)
    };
    let mut channel = Channel::new(socket);
    let broker = sys::set_name(c"bailiwick-brok")
        .and_then(|()| channel.send(hello(), Vec::new()))
        .and_then(|()| sys::enter_mounts(&namespace))
        .and_then(|()| sys::enter_root(&root))
        .and_then(|()| prepare(&memory, listener));
    drop((namespace, root, memory));
    match broker {
        Ok(broker) if channel.send(vec![SERVES], Vec::new()).is_ok() => pool::serve(broker),
        _ => sys::exit_now(1),
    }
}

fn prepare(memory: &OwnedFd, listener: OwnedFd) -> sys::Result<Broker> {
    /// CAP_SYS_PTRACE: for programs that are not dumpable, and where Yama lets only ancestors look.
    const TRACE: u64 = 1 << 19;
    let permitted = sys::capabilities()?.permitted;
    sys::keep_capabilities(permitted & TRACE)?;
    // Nothing of this process is for the commands, which run as the same user.
    sys::set_dumpable(false)?;
    sys::handle_alarms()?;
    let table = std::fs::read("/proc/self/mountinfo").map_err(|_| Errno::NOENT)?;
    let writable = writable(&table);
    let questions = Questions::map(memory)?;
    // It is not known whether a broker before this one had connected them when it was killed.
    for id in questions.left() {
        sys::may_fail(sys::answer(&listener, id, Err(Errno::CONNABORTED)));
    }
    // Where the kernel cannot, it takes longer.
    sys::may_fail(sys::answer_synchronously(&listener));
    Ok(Broker { listener, writable, questions })
}

/// The numbers of the mounts that are writable by their own option. The file system's is looked at again for each
/// socket.
fn writable(table: &[u8]) -> HashSet<u64> {
    // Number, parent, device, root, point, options; spaces in names are escaped.
    let number = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let number = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let mut options = fields.nth(4)?.split(|byte| *byte == b',');
        options.any(|option| option == b"rw").then_some(number)
    };
    table.split(|byte| *byte == b'\n').filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_with_the_option_are_writable() {
        let table = b"21 1 8:1 / / ro,relatime shared:1 - ext4 /dev/rw rw\n\
            22 21 0:5 / /a\\040rw,b rw,nosuid - tmpfs tmpfs rw\n\
            23 21 0:6 /rw /c nosuid,ro - tmpfs rw rw\n\
            24 21 0:7 / /d rw - tmpfs tmpfs ro\n";
        assert_eq!(writable(table), HashSet::from([22, 24]));
        assert_eq!(writable(b""), HashSet::new());
    }
}
