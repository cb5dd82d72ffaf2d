//! What commands may read.

use std::path::PathBuf;

/// What a directory that commands may read is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadPurpose {
    /// Commands may read what is below it.
    Root,
    /// Commands take programs from it: an entry of `PATH`, the directory of a tool.
    Programs,
    /// Ordinary tools need it. It may be a file, may be spelled with a link, and may be absent.
    Base,
    /// Commands may write below it, and so read.
    WriteRoot,
}

impl ReadPurpose {
    /// The name, in kebab-case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Programs => "programs",
            Self::Base => "base",
            Self::WriteRoot => "write-root",
        }
    }
}

/// What commands may read beside the write roots and the temporary directory.
///
/// Variables of the environment do not widen it: a directory that `PATH` names is read only if it is named here too.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ReadScope {
    /// Everything that their user may read, but devices.
    #[default]
    Everything,
    /// Only this. What is not named can be neither read, listed nor executed; of `/proc` only the names can be listed.
    Only(Readable),
}

/// What is named in a [`ReadScope`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readable {
    /// Directories below which commands may read and execute: canonical paths of directories that exist.
    pub roots: Vec<PathBuf>,
    /// Directories from which commands take programs. They are held to the same rules as `roots`, and no less can be
    /// read in them; the difference is what an error calls them.
    pub programs: Vec<PathBuf>,
    /// What ordinary tools need: directories and files, [`BASE`](Self::BASE) unless the caller says otherwise. What does
    /// not exist is passed over, and symbolic links are followed.
    pub base: Vec<PathBuf>,
}

impl Default for Readable {
    /// No roots, no programs, and [`BASE`](Self::BASE).
    fn default() -> Self {
        Self { roots: Vec::new(), programs: Vec::new(), base: Self::base_set() }
    }
}

impl Readable {
    /// What shells, compilers, interpreters and version control of a distribution need to start and to work: programs,
    /// libraries and headers, the tables of users, hosts and services, certificates of authorities, and the
    /// configuration that is the same for every user. No home, no `/var`, no `/run`, no `/opt`, no key.
    ///
    /// # Source
    /// Files opened by bash, git, gcc, make, python, perl, node and a JVM under `strace` on Debian 12, and the same places
    /// of distributions with other names for them.
    pub const BASE: &'static [&'static str] = &[
        // Programs and what they load. On most hosts all but the first are links into it.
        "/usr",
        "/bin",
        "/sbin",
        "/lib",
        "/lib32",
        "/lib64",
        "/libx32",
        "/etc/alternatives",
        "/etc/ld.so.cache",
        "/etc/ld.so.conf",
        "/etc/ld.so.conf.d",
        "/etc/ld.so.preload",
        // Names of users, hosts, services and times.
        "/etc/passwd",
        "/etc/group",
        "/etc/nsswitch.conf",
        "/etc/hosts",
        "/etc/host.conf",
        "/etc/gai.conf",
        "/etc/resolv.conf",
        "/etc/services",
        "/etc/protocols",
        "/etc/networks",
        "/etc/localtime",
        "/etc/timezone",
        "/etc/os-release",
        "/etc/debian_version",
        // Authorities to trust, and how to encrypt.
        "/etc/ssl/certs",
        "/etc/ssl/openssl.cnf",
        "/etc/ssl/cert.pem",
        "/etc/pki/ca-trust/extracted",
        "/etc/pki/tls/certs",
        "/etc/pki/tls/cert.pem",
        "/etc/pki/tls/openssl.cnf",
        "/etc/ca-certificates/extracted",
        "/etc/crypto-policies",
        "/etc/gnutls",
        // What every user's shell, editor line and version control begin with.
        "/etc/profile",
        "/etc/profile.d",
        "/etc/bash.bashrc",
        "/etc/bashrc",
        "/etc/inputrc",
        "/etc/terminfo",
        "/etc/gitconfig",
        "/etc/gitattributes",
        "/etc/locale.alias",
        "/etc/locale.conf",
        "/etc/mime.types",
        "/etc/magic",
        "/etc/fonts",
        // Parts of interpreters that distributions keep here and link to.
        "/etc/perl",
        "/etc/python",
        "/etc/python2.7",
        "/etc/python3",
        "/etc/python3.8",
        "/etc/python3.9",
        "/etc/python3.10",
        "/etc/python3.11",
        "/etc/python3.12",
        "/etc/python3.13",
        "/etc/python3.14",
        "/etc/java",
        "/etc/java-8-openjdk",
        "/etc/java-11-openjdk",
        "/etc/java-17-openjdk",
        "/etc/java-21-openjdk",
        "/etc/java-25-openjdk",
    ];

    /// [`BASE`](Self::BASE) as paths, to be changed.
    #[must_use]
    pub fn base_set() -> Vec<PathBuf> {
        Self::BASE.iter().map(PathBuf::from).collect()
    }

    /// Every path, with its purpose and its index in its list.
    pub(crate) fn named(&self) -> impl Iterator<Item = (ReadPurpose, usize, &PathBuf)> {
        let lists = [
            (ReadPurpose::Root, &self.roots),
            (ReadPurpose::Programs, &self.programs),
            (ReadPurpose::Base, &self.base),
        ];
        lists.into_iter().flat_map(|(purpose, list)| {
            list.iter().enumerate().map(move |(index, path)| (purpose, index, path))
        })
    }
}

impl ReadScope {
    /// Nothing but the base set, to which roots and programs can be added.
    #[must_use]
    pub fn base_only() -> Self {
        Self::Only(Readable::default())
    }

    /// What is named, if the scope is limited.
    #[must_use]
    pub fn readable(&self) -> Option<&Readable> {
        match self {
            Self::Everything => None,
            Self::Only(readable) => Some(readable),
        }
    }

    /// What is named; where the scope was everything, it is the base set from now on.
    pub fn limit(&mut self) -> &mut Readable {
        let named = match std::mem::take(self) {
            Self::Everything => Readable::default(),
            Self::Only(readable) => readable,
        };
        *self = Self::Only(named);
        match self {
            Self::Only(readable) => readable,
            Self::Everything => unreachable!("it was set a moment ago"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn naming_one_directory_limits_the_rest() {
        let mut scope = ReadScope::default();
        assert_eq!(scope.readable(), None);
        scope.limit().roots.push("/srv/a".into());
        scope.limit().roots.push("/srv/b".into());
        let readable = scope.readable().unwrap();
        assert_eq!(readable.roots, [Path::new("/srv/a"), Path::new("/srv/b")]);
        assert_eq!(readable.base, Readable::base_set());
        let named: Vec<_> = readable.named().take(3).map(|(purpose, index, _)| (purpose, index)).collect();
        assert_eq!(named, [(ReadPurpose::Root, 0), (ReadPurpose::Root, 1), (ReadPurpose::Base, 0)]);
    }

    /// What the set must never hold: places where users, services and sessions keep what is theirs.
    #[test]
    fn the_base_set_is_small_and_private_to_nobody() {
        let private = [
            "/", "/etc", "/home", "/root", "/var", "/run", "/tmp", "/opt", "/srv", "/mnt", "/proc", "/sys",
            "/dev",
        ];
        let secret = ["shadow", "gshadow", "sudoers", "private", "environment", "ssh"];
        let mut seen = BTreeSet::new();
        for entry in Readable::BASE {
            assert!(seen.insert(entry), "{entry} stands there twice");
            let path = Path::new(entry);
            assert!(path.is_absolute() && !private.contains(entry), "{entry}");
            let top = path.components().nth(1).unwrap().as_os_str();
            assert!(
                ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc"]
                    .map(std::ffi::OsStr::new)
                    .contains(&top)
            );
            assert!(!secret.iter().any(|part| entry.split('/').any(|name| name == *part)), "{entry}");
        }
    }
}
