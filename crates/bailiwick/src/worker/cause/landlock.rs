//! Why Landlock is not to be had here, or not as much of it as its version says.

use std::io::Read as _;

use rustix::io::Errno;

use super::Word;
use crate::error::{Error, ErrorKind, Field};
use crate::sys::landlock;

/// The version without which no session works: files move between directories of a root (Linux 5.19). From the next one
/// on Landlock keeps content by itself; below that a mount view does with it, or the session is refused for the gap.
const NEEDED_ABI: u32 = 2;
/// What later versions brought, by the names of protections, and the version.
const LATER: [(&str, u32); 4] = [("content", 3), ("devices", 5), ("signals", 6), ("abstract-sockets", 6)];
/// Rights of files, in the order of their bits, with the version that brought each.
const FILES: [(&str, u32); 16] = [
    ("execute", 1),
    ("write-file", 1),
    ("read-file", 1),
    ("read-dir", 1),
    ("remove-dir", 1),
    ("remove-file", 1),
    ("make-char", 1),
    ("make-dir", 1),
    ("make-reg", 1),
    ("make-sock", 1),
    ("make-fifo", 1),
    ("make-block", 1),
    ("make-sym", 1),
    ("refer", 2),
    ("truncate", 3),
    ("ioctl-dev", 5),
];
/// Scopes, likewise.
const SCOPES: [(&str, u32); 2] = [("scope-abstract-unix-socket", 6), ("scope-signal", 6)];

/// Whether the kernel was built with Landlock, as far as can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Built {
    Yes,
    No,
    Unknown,
}

/// What was found out.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Facts {
    /// The version that is reported, or the answer to the question.
    version: Result<u32, Errno>,
    /// The answer to a ruleset with all that is needed.
    needed: Result<(), Errno>,
    /// Rights and scopes of the reported version that are refused one by one.
    refused: Vec<&'static str>,
    built: Built,
    /// Landlock is among the security modules that this boot uses.
    in_force: bool,
}

impl Facts {
    fn look() -> Self {
        let version = landlock::version();
        let in_force = modules().is_some_and(|list| list.split(',').any(|name| name.trim() == "landlock"));
        Self {
            needed: landlock::takes(needed_files(), 0),
            refused: version.map(refused).unwrap_or_default(),
            built: if version.is_ok() || in_force { Built::Yes } else { built() },
            version,
            in_force,
        }
    }

    fn word(&self) -> Word {
        let answer = match (self.version, self.needed) {
            (Ok(version), _) if version < NEEDED_ABI => return Word::TooOld,
            (Ok(_), Err(Errno::INVAL | Errno::TOOBIG)) => return Word::ClaimsMore,
            (Err(errno), _) | (Ok(_), Err(errno)) => errno,
            (Ok(_), Ok(())) => return Word::Refused,
        };
        match (answer, self.built) {
            // Whoever says that it is not there says so of something that is.
            (Errno::NOSYS, Built::Yes) => Word::Blocked,
            (Errno::NOSYS, Built::No) => Word::NotBuiltIn,
            (Errno::NOSYS, Built::Unknown) => Word::NotBuiltInOrBlocked,
            (Errno::OPNOTSUPP, _) if self.in_force => Word::Blocked,
            (Errno::OPNOTSUPP, _) => Word::DisabledAtBoot,
            // The kernel itself never answers so.
            (Errno::PERM | Errno::ACCESS, _) => Word::Blocked,
            _ => Word::Refused,
        }
    }

    fn text(&self) -> String {
        match (self.word(), self.version) {
            (Word::NotBuiltIn, _) => "this kernel was built without Landlock".to_owned(),
            (Word::DisabledAtBoot, _) => "Landlock was not enabled at boot".to_owned(),
            (Word::Blocked, _) => {
                "something stands before this kernel's Landlock: a container profile".to_owned()
            }
            (Word::NotBuiltInOrBlocked, _) => {
                "this kernel was built without Landlock, or a container profile hides it".to_owned()
            }
            (Word::TooOld, Ok(version)) => format!(
                "this kernel's Landlock is too old: ABI {version}, and ABI {NEEDED_ABI} is needed, which lets files move between directories"
            ),
            (Word::ClaimsMore, Ok(version)) => format!(
                "this kernel reports Landlock ABI {version} and refuses what belongs to it: {}",
                if self.refused.is_empty() {
                    "all of it together".to_owned()
                } else {
                    self.refused.join(", ")
                }
            ),
            _ => "this kernel takes no Landlock ruleset".to_owned(),
        }
    }

    fn hint(&self) -> &'static str {
        match self.word() {
            Word::NotBuiltIn => "run on a kernel with CONFIG_SECURITY_LANDLOCK, Linux 6.12 or newer",
            Word::DisabledAtBoot => "boot with `landlock` among the names of `lsm=`",
            Word::Blocked => {
                "let the container profile permit `landlock_create_ruleset`, `landlock_add_rule` and `landlock_restrict_self`"
            }
            Word::TooOld => "run on Linux 6.12 or newer",
            Word::ClaimsMore => "run on another kernel; this one needs a fix of whoever builds it",
            _ => {
                "run on Linux 6.12 or newer with Landlock enabled at boot (`lsm=` must name it), outside of a container \
                 profile that blocks it"
            }
        }
    }

    /// Adds the numbers and names.
    fn told(&self, mut error: Error) -> Error {
        if let Ok(version) = self.version {
            error = error.number("reported_abi", version);
        }
        if !self.refused.is_empty() {
            let names = self.refused.iter().map(|name| Field::Text((*name).to_owned())).collect();
            error = error.with("refused_rights", Field::List(names));
        }
        error
    }
}

/// The error for a host without what every session needs of Landlock.
pub(crate) fn missing(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let facts = Facts::look();
    // A host that is out of descriptors or memory has Landlock all the same.
    if facts.word() == Word::Refused {
        return Error::new(ErrorKind::GrantFailed, "the kernel did not take a ruleset of the grant")
            .hint("see the kernel's answer; limits on descriptors and memory are the usual cause")
            .source(source);
    }
    let error =
        Error::new(ErrorKind::PlatformUnsupported, format!("cannot confine commands: {}", facts.text()))
            .text("needs", "Landlock")
            .text("cause", facts.word().name())
            .number("needed_abi", NEEDED_ABI);
    facts.told(error).hint(facts.hint()).source(source)
}

/// Adds to a refusal what the kernel reports of Landlock, where it refuses a part of that or has too old a version for
/// something that is refused: the refusal may come from there.
pub(crate) fn shortfall(error: Error) -> Error {
    let Ok(version) = landlock::version() else { return error };
    let refused = refused(version);
    if refused.is_empty() {
        return outdated(error, version);
    }
    let text = format!(
        "this kernel reports Landlock ABI {version} and refuses what belongs to it: {}; another kernel may keep more",
        refused.join(", ")
    );
    let names = refused.into_iter().map(|name| Field::Text(name.to_owned())).collect();
    error
        .text("cause", Word::ClaimsMore.name())
        .number("reported_abi", version)
        .with("refused_rights", Field::List(names))
        .hint(text)
}

/// Adds that a version lacks what would keep something that an error names.
fn outdated(error: Error, version: u32) -> Error {
    let named = error.field("protections").and_then(Field::as_list).unwrap_or_default();
    let lacks: Vec<String> = LATER
        .iter()
        .filter(|(name, since)| version < *since && named.iter().any(|one| one.as_text() == Some(name)))
        .map(|(name, since)| format!("ABI {since} keeps `{name}`"))
        .collect();
    if lacks.is_empty() {
        return error;
    }
    let text = format!(
        "this kernel's Landlock is of ABI {version}, and by itself {}: run on Linux 6.12 or newer, or where namespaces can be had",
        lacks.join(", ")
    );
    error.text("cause", Word::TooOld.name()).number("reported_abi", version).hint(text)
}

fn needed_files() -> u64 {
    bits(&FILES, NEEDED_ABI).fold(0, |all, (_, bit)| all | bit)
}

/// Names and bits that a version has.
fn bits(table: &'static [(&'static str, u32)], version: u32) -> impl Iterator<Item = (&'static str, u64)> {
    table
        .iter()
        .zip(0..)
        .filter(move |((_, since), _)| *since <= version)
        .map(|((name, _), bit)| (*name, 1 << bit))
}

/// What a version has and this kernel does not take.
fn refused(version: u32) -> Vec<&'static str> {
    let is_refused = |answer| matches!(answer, Err(Errno::INVAL | Errno::TOOBIG));
    let files = bits(&FILES, version).filter(|(_, bit)| is_refused(landlock::takes(*bit, 0)));
    let scopes = bits(&SCOPES, version).filter(|(_, bit)| is_refused(landlock::takes(0, *bit)));
    files.chain(scopes).map(|(name, _)| name).collect()
}

/// The security modules in force; none where the kernel's own file system for that is not mounted.
fn modules() -> Option<String> {
    std::fs::read_to_string("/sys/kernel/security/lsm").ok()
}

/// Whether the kernel was built with Landlock, after it was said that it has no such call.
fn built() -> Built {
    // A filter that forgot one of the calls, and a kernel that answers by itself.
    if matches!(landlock::rule_for_nothing(), Errno::BADF | Errno::OPNOTSUPP | Errno::INVAL) {
        return Built::Yes;
    }
    // A structure that only Landlock's own code has, in the kernel's description of its types.
    if let Some(described) = describes(b"landlock_hierarchy\0") {
        return if described { Built::Yes } else { Built::No };
    }
    // Nobody but the kernel can have answered.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let filtered = status.lines().find_map(|line| line.strip_prefix("Seccomp:")).map(str::trim);
    if filtered == Some("0") { Built::No } else { Built::Unknown }
}

/// Whether the kernel's description of its types has this name. None where it shows none.
fn describes(name: &[u8]) -> Option<bool> {
    let mut description = Vec::new();
    std::fs::File::open("/sys/kernel/btf/vmlinux").ok()?.read_to_end(&mut description).ok()?;
    Some(description.windows(name.len()).any(|window| window == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_tell_the_cause() {
        use Errno as E;
        let fine: Result<(), E> = Ok(());
        let table = [
            (Err(E::NOSYS), Err(E::NOSYS), Built::Yes, false, "blocked"),
            (Err(E::NOSYS), Err(E::NOSYS), Built::Yes, true, "blocked"),
            (Err(E::NOSYS), Err(E::NOSYS), Built::No, false, "not-built-in"),
            (Err(E::NOSYS), Err(E::NOSYS), Built::Unknown, false, "not-built-in-or-blocked"),
            (Err(E::OPNOTSUPP), Err(E::OPNOTSUPP), Built::Yes, false, "disabled-at-boot"),
            (Err(E::OPNOTSUPP), Err(E::OPNOTSUPP), Built::Yes, true, "blocked"),
            (Err(E::PERM), Err(E::PERM), Built::Yes, true, "blocked"),
            (Err(E::ACCESS), Err(E::ACCESS), Built::Unknown, false, "blocked"),
            (Ok(1), Err(E::INVAL), Built::Yes, true, "too-old"),
            (Ok(2), Err(E::INVAL), Built::Yes, true, "claims-more"),
            (Ok(3), Err(E::INVAL), Built::Yes, true, "claims-more"),
            (Ok(9), Err(E::TOOBIG), Built::Yes, true, "claims-more"),
            // The question is answered, and the call is not.
            (Ok(7), Err(E::PERM), Built::Yes, true, "blocked"),
            (Ok(7), Err(E::MFILE), Built::Yes, true, "refused"),
            (Ok(7), fine, Built::Yes, true, "refused"),
        ];
        for (version, needed, built, in_force, word) in table {
            let facts = Facts { version, needed, refused: Vec::new(), built, in_force };
            assert_eq!(facts.word().name(), word, "{facts:?}");
        }
    }

    #[test]
    fn rights_are_the_kernels() {
        use ::landlock::{ABI, Access as _, AccessFs, Scope};
        let all = |table: &'static [(&'static str, u32)], version| {
            bits(table, version).fold(0, |all, (_, bit)| all | bit)
        };
        for (version, abi) in
            [(1, ABI::V1), (2, ABI::V2), (3, ABI::V3), (4, ABI::V4), (5, ABI::V5), (6, ABI::V6)]
        {
            assert_eq!(all(&FILES, version), AccessFs::from_all(abi).bits(), "ABI {version}");
            assert_eq!(all(&SCOPES, version), Scope::from_all(abi).bits(), "ABI {version}");
        }
        assert_eq!(needed_files(), AccessFs::from_all(ABI::V2).bits());
    }

    /// On whatever kernel this runs: what it claims it takes, or the facts say which part not.
    #[test]
    fn this_kernel_is_looked_at() {
        let facts = Facts::look();
        match facts.version {
            Ok(version) if facts.refused.is_empty() && version >= NEEDED_ABI => {
                assert_eq!(facts.needed, Ok(()))
            }
            Ok(_) => assert!(matches!(facts.word(), Word::TooOld | Word::ClaimsMore), "{facts:?}"),
            Err(_) => assert_ne!(facts.word(), Word::Refused, "{facts:?}"),
        }
    }
}
