//! The kernels that `.ci/kernels` unpacks, and the modules of one in the order in which they can be loaded.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::target_directory;

/// A kernel that a machine can be booted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Landlock without a right to truncate and without scopes; no system calls for the mount table.
    Old,
    /// With all of that.
    New,
}

impl Kernel {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Old, Self::New];

    /// Where it is unpacked.
    pub(super) fn directory(self) -> PathBuf {
        target_directory().join("kernels").join(match self {
            Self::Old => "old",
            Self::New => "new",
        })
    }

    pub(super) fn image(self) -> PathBuf {
        self.directory().join("vmlinuz")
    }

    /// The contents of the wanted modules, each after those that it depends on. What the kernel has no module for is
    /// left out: it may be built in, and the machine says so if not.
    pub(super) fn modules(self, wanted: &[&str]) -> Vec<Vec<u8>> {
        let directory = self.directory().join("modules");
        let list =
            fs::read_dir(&directory).unwrap_or_else(|error| panic!("list {}: {error}", directory.display()));
        let files: BTreeMap<String, PathBuf> =
            list.flatten().filter_map(|entry| Some((module_name(&entry.path())?, entry.path()))).collect();
        let mut order = Order { files, done: Vec::new(), contents: Vec::new() };
        for module in wanted {
            order.add(module);
        }
        order.contents
    }
}

/// Modules are named with underscores, whatever their files are named with.
fn module_name(file: &Path) -> Option<String> {
    Some(file.file_name()?.to_str()?.strip_suffix(".ko")?.replace('-', "_"))
}

struct Order {
    files: BTreeMap<String, PathBuf>,
    done: Vec<String>,
    contents: Vec<Vec<u8>>,
}

impl Order {
    fn add(&mut self, module: &str) {
        let Some(file) = self.files.get(module) else { return };
        if self.done.iter().any(|done| done == module) {
            return;
        }
        self.done.push(module.to_owned());
        let content = fs::read(file).unwrap_or_else(|error| panic!("read {}: {error}", file.display()));
        for needed in dependencies(&content) {
            self.add(&needed);
        }
        self.contents.push(content);
    }
}

/// What a module says that it needs. What it only asks for by name while it runs is not among it.
fn dependencies(module: &[u8]) -> Vec<String> {
    let list = module.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(b"depends="));
    let list = list
        .map(String::from_utf8_lossy)
        .unwrap_or_else(|| panic!("a module without a list of dependencies"));
    list.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}
