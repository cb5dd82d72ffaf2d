//! What no write root may reach.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::search::LinkSearch;
use crate::error::{Error, ErrorKind, Quoted};
use crate::identity::{
    DatabaseFault, Fault, Key, Library, ObjectId, Pin, Role, Walk, host_executable, loaded_library,
    pin_database,
};
use crate::policy::{PathFault, Policy, path_fault, protected_invalid};
use crate::store::{StoreDir, StorePlace};

/// Why an object is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ProtectedKind {
    /// The store of the session: its history.
    Store,
    /// The private directory that holds what a running session needs.
    RuntimeHome,
    /// The executable of the host process.
    HostExecutable,
    /// The library that this code was loaded from, where it is not the executable: an addon of Node.
    Addon,
    /// The caller said so.
    Caller,
    /// A database that the caller named, a file that it keeps beside itself, or a link that leads to it.
    Database,
}

impl ProtectedKind {
    /// The name, in kebab-case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::RuntimeHome => "runtime-home",
            Self::HostExecutable => "host-executable",
            Self::Addon => "addon",
            Self::Caller => "caller",
            Self::Database => "database",
        }
    }

    /// What to call the object in a sentence.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Store => "the store",
            Self::RuntimeHome => "the runtime home",
            Self::HostExecutable => "the executable of this process",
            Self::Addon => "the library that this code was loaded from",
            Self::Caller => "the protected path",
            Self::Database => "the protected database, or a file that belongs to it",
        }
    }
}

/// An object that no write root may reach, and where it lay when it was looked at.
#[derive(Debug)]
pub struct ProtectedObject {
    kind: ProtectedKind,
    role: Role,
    pin: Pin,
    /// The directories above it when it was opened, nearest first.
    above: Vec<Key>,
}

impl ProtectedObject {
    fn new(kind: ProtectedKind, role: Role, pin: Pin, walk: &mut Walk) -> Result<Self, Error> {
        let above = pin.above(walk).map_err(|fault| role.fault(fault, pin.given()))?;
        Ok(Self { kind, role, above: above.iter().map(|node| node.key).collect(), pin })
    }

    /// Why it is protected.
    #[must_use]
    pub fn kind(&self) -> ProtectedKind {
        self.kind
    }

    /// The path as the caller wrote it.
    #[must_use]
    pub fn given(&self) -> &Path {
        self.pin.given()
    }

    /// The canonical path, as it was when the object was opened.
    #[must_use]
    pub fn canonical(&self) -> &Path {
        self.pin.canonical()
    }

    /// Which object it is; `None` for a store that has not been made yet, and for
    /// an executable that lies where this user cannot look.
    #[must_use]
    pub fn id(&self) -> Option<&ObjectId> {
        self.pin.id()
    }

    pub(super) fn pin(&self) -> &Pin {
        &self.pin
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// The directories above it when it was opened.
    pub(super) fn above(&self) -> &[Key] {
        &self.above
    }

    /// The directories above it, walked again.
    pub(super) fn above_now(&self, walk: &mut Walk) -> Result<Vec<Key>, Error> {
        let chain = self.pin.above(walk).map_err(|fault| self.role.fault(fault, self.pin.given()))?;
        Ok(chain.iter().map(|node| node.key).collect())
    }
}

struct Inner {
    objects: Vec<ProtectedObject>,
    notes: Vec<String>,
    search: LinkSearch,
}

/// Everything that no write root of a session may reach. Cheap to clone: the clones share their descriptors.
///
/// It always holds the store, and the executable of the host process where a name still leads to it.
#[derive(Clone)]
pub struct ProtectedSet(Arc<Inner>);

impl ProtectedSet {
    /// The set of a session: the store with its runtime home, the host executable, and what the policy protects.
    ///
    /// # Errors
    /// As for [`ProtectedSetBuilder::build`].
    pub fn for_session(store: &StoreDir, policy: &Policy) -> Result<Self, Error> {
        Self::around(store).protect(&policy.protect).databases(&policy.databases).build()
    }

    /// Begins a set with a store that is open, and its runtime home.
    #[must_use]
    pub fn around(store: &StoreDir) -> ProtectedSetBuilder {
        ProtectedSetBuilder::default()
            .pinned(
                ProtectedKind::Store,
                Role::Store,
                store.dir().duplicate().map(Pin::Directory),
                store.dir().given(),
            )
            .pinned(
                ProtectedKind::RuntimeHome,
                Role::RuntimeHome,
                store.run_dir().duplicate().map(Pin::Directory),
                store.run_dir().given(),
            )
    }

    /// Begins a set with the place of a store, which need not exist yet: so that a policy can be refused before
    /// anything has been made.
    #[must_use]
    pub fn around_place(place: &StorePlace) -> ProtectedSetBuilder {
        ProtectedSetBuilder::default().pinned(ProtectedKind::Store, Role::Store, place.pin(), place.given())
    }

    /// The objects, the store first.
    #[must_use]
    pub fn objects(&self) -> &[ProtectedObject] {
        &self.0.objects
    }

    /// What could have been protected and is not, with the reason, in plain words.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.0.notes
    }

    /// The bounds of a search for other names of protected files.
    #[must_use]
    pub fn link_search(&self) -> &LinkSearch {
        &self.0.search
    }
}

impl fmt::Debug for ProtectedSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectedSet")
            .field("objects", &self.0.objects)
            .field("notes", &self.0.notes)
            .finish()
    }
}

/// Gathers a [`ProtectedSet`]. The first fault is kept until [`build`](Self::build).
#[derive(Debug, Default)]
pub struct ProtectedSetBuilder {
    entries: Vec<Result<(ProtectedKind, Role, Pin), Error>>,
    search: LinkSearch,
}

impl ProtectedSetBuilder {
    fn pinned(mut self, kind: ProtectedKind, role: Role, pin: Result<Pin, Fault>, given: &Path) -> Self {
        self.entries.push(pin.map(|pin| (kind, role, pin)).map_err(|fault| role.fault(fault, given)));
        self
    }

    /// Adds a runtime home that lies outside of the store.
    #[must_use]
    pub fn runtime_home(mut self, path: &Path) -> Self {
        let role = Role::RuntimeHome;
        match path_fault(path) {
            Some(fault) => {
                let error = role.error(ErrorKind::ProtectedInvalid, fault.text(), path).hint(fault.hint());
                self.entries.push(Err(error));
                self
            }
            None => self.pinned(ProtectedKind::RuntimeHome, role, Pin::open(path), path),
        }
    }

    /// Adds what the caller wants protected: directories, or files of any type. Each must exist.
    #[must_use]
    pub fn protect(mut self, paths: &[PathBuf]) -> Self {
        for (index, path) in paths.iter().enumerate() {
            self = self.protect_one(index, path, path_fault(path));
        }
        self
    }

    fn protect_one(mut self, index: usize, path: &Path, fault: Option<PathFault>) -> Self {
        match fault {
            Some(fault) => {
                self.entries.push(Err(protected_invalid(index, path, fault)));
                self
            }
            None => self.pinned(ProtectedKind::Caller, Role::Protected(index), Pin::open(path), path),
        }
    }

    /// Adds databases: each with the files that SQLite keeps beside it (`-wal`, `-shm`, `-journal`), present or not.
    /// Where a path is a symbolic link, the target's files are meant, and the link itself too. A database need not
    /// exist yet; its directory must.
    #[must_use]
    pub fn databases(mut self, paths: &[PathBuf]) -> Self {
        for (index, path) in paths.iter().enumerate() {
            let role = Role::Database(index);
            let pinned = match path_fault(path) {
                Some(fault) => {
                    Err(role.error(ErrorKind::ProtectedInvalid, fault.text(), path).hint(fault.hint()))
                }
                None => pin_database(path).map_err(|fault| database_error(role, path, fault)),
            };
            match pinned {
                Ok(pins) => {
                    self.entries.extend(pins.into_iter().map(|pin| Ok((ProtectedKind::Database, role, pin))));
                }
                Err(error) => self.entries.push(Err(error)),
            }
        }
        self
    }

    /// Bounds the search for other names of protected files.
    #[must_use]
    pub fn link_search(mut self, search: LinkSearch) -> Self {
        self.search = search;
        self
    }

    /// Adds the host executable and the library of this code, and finishes the set.
    ///
    /// # Errors
    /// `ProtectedInvalid`, `ProtectedNotFound` or `ProtectedNotAccessible` with the path and its index;
    /// `StoreNotAccessible`; `PlatformUnsupported`.
    pub fn build(self) -> Result<ProtectedSet, Error> {
        let mut walk = Walk::default();
        let mut notes = Vec::new();
        let mut objects = Vec::with_capacity(self.entries.len() + 2);
        for entry in self.entries {
            let (kind, role, pin) = entry?;
            objects.push(ProtectedObject::new(kind, role, pin, &mut walk)?);
        }
        let (kind, role) = (ProtectedKind::HostExecutable, Role::HostExecutable);
        match host_executable().map_err(|fault| role.fault(fault, Path::new("/proc/self/exe")))? {
            Some(pin) => objects.push(ProtectedObject::new(kind, role, pin, &mut walk)?),
            None => notes.push(
                "the executable of this process has no name on disk (removed, replaced, or run from memory), so \
                 there is no file of it to protect"
                    .into(),
            ),
        }
        let (kind, role) = (ProtectedKind::Addon, Role::Addon);
        match loaded_library().map_err(|fault| role.fault(fault, Path::new("/proc/self/maps")))? {
            Library::Pinned(pin) => objects.push(ProtectedObject::new(kind, role, *pin, &mut walk)?),
            Library::Nameless(name) => notes.push(format!(
                "the library that this code was loaded from is no longer at its name ({}), so there is no file of it to protect",
                Quoted::new(&name)
            )),
            Library::None => {}
        }
        Ok(ProtectedSet(Arc::new(Inner { objects, notes, search: self.search })))
    }
}

fn database_error(role: Role, given: &Path, fault: DatabaseFault) -> Error {
    match fault {
        DatabaseFault::Fault(fault) => role.fault(fault, given),
        DatabaseFault::Foreign { path, found } => role
            .error(
                ErrorKind::ProtectedInvalid,
                &format!("has {found} where a file of its own belongs ({})", Quoted::new(&path)),
                given,
            )
            .path("path", path)
            .text("found", found)
            .hint("remove it if you know where it came from, or keep the database in another directory"),
    }
}
