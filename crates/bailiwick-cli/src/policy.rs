//! From arguments to a session builder. Paths are handed over as they were written: the library refuses what it
//! does not take, with the index and the value.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use bailiwick::{
    Limit, Network, Protection, ReadScope, Readable, Resource, RootCapabilities, Session, SessionBuilder,
    SessionLimit,
};

use crate::args::{CapabilitiesWord, NetworkWord, PolicyArgs};
use crate::environment;
use crate::failure::{Code, Failure};
use crate::render::{listed, quoted};

/// The policy options, understood.
#[derive(Debug)]
pub(crate) struct Asked {
    write_roots: Vec<PathBuf>,
    read: ReadScope,
    protect: Vec<PathBuf>,
    protect_database: Vec<PathBuf>,
    network: Network,
    env: Vec<(OsString, OsString)>,
    accept: Vec<Gap>,
    limits: Vec<Limit>,
    memory_max: Option<u64>,
    processes_max: Option<u64>,
    group_parent: Option<PathBuf>,
    root_capabilities: RootCapabilities,
}

/// What can be accepted by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gap {
    Protection(Protection),
    Limit(SessionLimit),
}

impl Asked {
    /// # Errors
    /// A name or number that means nothing, a variable that is not set.
    pub(crate) fn read(args: &PolicyArgs) -> Result<Self, Failure> {
        let read = read_scope(args);
        let keeps_home = read == ReadScope::Everything;
        Ok(Self {
            read,
            write_roots: args.write_root.iter().map(PathBuf::from).collect(),
            protect: args.protect.iter().map(PathBuf::from).collect(),
            protect_database: args.protect_database.iter().map(PathBuf::from).collect(),
            network: match args.network {
                NetworkWord::Deny => Network::Deny,
                NetworkWord::Loopback => Network::Loopback,
                NetworkWord::Allow => Network::Allow,
            },
            env: environment::for_command(&args.env, keeps_home)?,
            accept: args.accept.iter().map(|name| gap(name)).collect::<Result<_, _>>()?,
            limits: args.limit.iter().map(|entry| limit(entry)).collect::<Result<_, _>>()?,
            memory_max: session_limit("--memory-max", args.memory_max.as_deref())?,
            processes_max: session_limit("--processes-max", args.processes_max.as_deref())?,
            group_parent: args.group_parent.as_ref().map(PathBuf::from),
            root_capabilities: match args.root_capabilities {
                CapabilitiesWord::None => RootCapabilities::None,
                CapabilitiesWord::Files => RootCapabilities::Files,
            },
        })
    }

    /// A session with this policy and its store there.
    pub(crate) fn builder(&self, store: &Path) -> SessionBuilder {
        let mut builder = Session::builder(store)
            .write_roots(&self.write_roots)
            .read_scope(self.read.clone())
            .network(self.network)
            .root_capabilities(self.root_capabilities)
            .envs(self.env.iter().cloned());
        for path in &self.protect {
            builder = builder.protect(path);
        }
        for path in &self.protect_database {
            builder = builder.protect_database(path);
        }
        for gap in &self.accept {
            builder = match gap {
                Gap::Protection(protection) => builder.accept(*protection),
                Gap::Limit(limit) => builder.accept_limit(*limit),
            };
        }
        for limit in &self.limits {
            builder = builder.limit(*limit);
        }
        if let Some(bytes) = self.memory_max {
            builder = builder.memory_max(bytes);
        }
        if let Some(count) = self.processes_max {
            builder = builder.processes_max(count);
        }
        if let Some(group) = &self.group_parent {
            builder = builder.group_parent(group);
        }
        builder
    }
}

/// Stands for the base set among its parts. No path: those are absolute.
const DEFAULT_BASE: &str = "default";

/// Everything, unless something is named to be read.
fn read_scope(args: &PolicyArgs) -> ReadScope {
    if args.read_root.is_empty() && args.program_dir.is_empty() && args.read_base.is_empty() {
        return ReadScope::Everything;
    }
    let paths = |list: &[OsString]| list.iter().map(PathBuf::from).collect();
    let base = if args.read_base.is_empty() {
        Readable::base_set()
    } else {
        let parts = args.read_base.iter().map(|part| match part {
            part if part == DEFAULT_BASE => Readable::base_set(),
            part => vec![part.into()],
        });
        parts.flatten().collect()
    };
    ReadScope::Only(Readable { roots: paths(&args.read_root), programs: paths(&args.program_dir), base })
}

/// Names of all that can be accepted, in the library's order.
pub(crate) fn gap_names() -> impl Iterator<Item = &'static str> {
    let limits = SessionLimit::ALL.iter().map(|limit| limit.name());
    Protection::ALL.iter().map(|protection| protection.name()).chain(limits)
}

/// Names of all resources, in the library's order.
pub(crate) fn resource_names() -> impl Iterator<Item = &'static str> {
    Resource::ALL.iter().map(|resource| resource.name())
}

fn gap(name: &OsStr) -> Result<Gap, Failure> {
    let text = name.to_str();
    let protection = text.and_then(Protection::from_name).map(Gap::Protection);
    protection.or_else(|| text.and_then(SessionLimit::from_name).map(Gap::Limit)).ok_or_else(|| {
        Failure::new(Code::ProtectionUnknown, format!("no protection has this name: {}", quoted(name)))
            .value("value", name)
            .names("known", gap_names())
            .hint(format!("`--accept` takes one of {}", listed(gap_names())))
    })
}

fn session_limit(option: &str, value: Option<&OsStr>) -> Result<Option<u64>, Failure> {
    let Some(value) = value else { return Ok(None) };
    value.to_str().and_then(whole).map(Some).ok_or_else(|| {
        Failure::new(Code::LimitInvalid, format!("no limit can be read from this: {}", quoted(value)))
            .value("value", value)
            .hint(format!("`{option}` takes a whole number"))
    })
}

/// The word for no limit.
const UNLIMITED: &str = "unlimited";

fn limit(entry: &OsStr) -> Result<Limit, Failure> {
    let parsed = entry.to_str().and_then(|text| text.split_once('=')).and_then(|(name, number)| {
        let value = if number == UNLIMITED { Limit::UNLIMITED } else { whole(number)? };
        Some(Limit::of(Resource::from_name(name)?, value))
    });
    parsed.ok_or_else(|| {
        Failure::new(Code::LimitInvalid, format!("no limit can be read from this: {}", quoted(entry)))
            .value("value", entry)
            .names("known", resource_names())
            .hint(format!(
                "`--limit NAME=N` takes a whole number or `{UNLIMITED}`, and as the name one of {}",
                listed(resource_names())
            ))
    })
}

/// Digits and nothing else: `u64::from_str` would take a plus sign too.
fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        let read = |text: &str| limit(OsStr::new(text)).ok();
        assert_eq!(read("core=0"), Some(Limit::of(Resource::Core, 0)));
        assert_eq!(read("open-files=unlimited"), Some(Limit::of(Resource::OpenFiles, Limit::UNLIMITED)));
        assert_eq!(read("cpu=18446744073709551614"), Some(Limit::of(Resource::Cpu, u64::MAX - 1)));
        for bad in [
            "",
            "core",
            "core=",
            "=1",
            "core=-1",
            "core=+1",
            "core=1k",
            "cores=1",
            "cpu=18446744073709551616",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
