//! What a mount view is built from, as the guard saw it.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use bailiwick_wire::{Hidden, Place, Plan};

use super::grant::Grant;
use super::protected::ProtectedKind;
use crate::identity::{Key, Pin, PinnedDir};

impl Grant {
    /// The plan of the view: the roots, and every place at which protected state is seen, by all names that it has.
    ///
    /// The programs that run the session are protected from writing, not hidden: commands may run them too.
    pub(crate) fn plan(&self, temporary: &PinnedDir, outside: &PinnedDir) -> Plan {
        let state = self.state();
        let outlook = &state.basis.outlook;
        let mut hidden = Vec::new();
        for (number, object) in self.protected().objects().iter().enumerate() {
            if matches!(object.kind(), ProtectedKind::HostExecutable | ProtectedKind::Addon) {
                continue;
            }
            let is_directory = matches!(object.pin(), Pin::Directory(_));
            let itself = object.id().map(|id| place(object.canonical(), id.key()));
            let views = outlook.all_views_of(number);
            let elsewhere = views.filter_map(|view| view.key.map(|key| place(&view.name, key)));
            hidden.extend(itself.into_iter().chain(elsewhere).map(|place| Hidden { place, is_directory }));
        }
        Plan {
            roots: self.roots().iter().map(pinned).collect(),
            temporary: pinned(temporary),
            outside: pinned(outside),
            hidden,
        }
    }
}

fn pinned(directory: &PinnedDir) -> Place {
    place(directory.canonical(), directory.id().key())
}

fn place(path: &Path, key: Key) -> Place {
    Place { path: path.as_os_str().as_bytes().to_vec(), device: key.numbers(), inode: key.inode() }
}
