//! The one table of error kinds.
//!
//! A row is: variant, code, whether the same call may succeed later unchanged, what had run, what it means,
//! what usually helps. Codes are stable once released: add rows, never rename one.

use std::fmt;

/// Whether the call that returned an error had started a command.
///
/// Advice to try again is only safe after [`Ran::Nothing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ran {
    /// No command was started by the call.
    Nothing,
    /// A command had started; it may have changed what it was allowed to change.
    Something,
    /// It cannot be told from here. Treat it as [`Ran::Something`].
    Unknown,
}

impl Ran {
    /// One word for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Something => "something",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "no command was run",
            Self::Something => "a command had started",
            Self::Unknown => "whether a command ran is not known",
        })
    }
}

macro_rules! kinds {
    ($($kind:ident $code:literal retry($retry:literal) ran($ran:ident) $meaning:literal, $remedy:literal;)+) => {
        /// What went wrong, one variant for each code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $(
                #[doc = $meaning]
                #[doc = ""]
                #[doc = $remedy]
                $kind,
            )+
        }

        impl ErrorKind {
            /// Every kind, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            /// The stable code, `ERR_BAILIWICK_*`.
            #[must_use]
            pub fn code(self) -> &'static str {
                match self { $(Self::$kind => $code,)+ }
            }

            /// Whether the same call may usually succeed later with nothing changed by the caller.
            /// [`Error::can_retry`](crate::Error::can_retry) answers for one error.
            #[must_use]
            pub fn can_retry(self) -> bool {
                match self { $(Self::$kind => $retry,)+ }
            }

            /// What had usually run. [`Error::ran`](crate::Error::ran) answers for one error.
            #[must_use]
            pub fn ran(self) -> Ran {
                match self { $(Self::$kind => Ran::$ran,)+ }
            }

            /// What the kind means, in one sentence.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$kind => $meaning,)+ }
            }

            /// What usually helps, in one sentence. The hints of an error name the values.
            #[must_use]
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$kind => $remedy,)+ }
            }
        }
    };
}

kinds! {
    RootInvalid "ERR_BAILIWICK_ROOT_INVALID" retry(false) ran(Nothing)
        "A write root is not an absolute path: it is empty or relative, holds a NUL byte, or is longer than the kernel takes.",
        "Give the absolute path; nothing is expanded, so resolve `~` and `$NAME` first.";
    RootNotFound "ERR_BAILIWICK_ROOT_NOT_FOUND" retry(false) ran(Nothing)
        "A write root does not exist.",
        "Make the directory first; a parent is never granted in its place.";
    RootNotDirectory "ERR_BAILIWICK_ROOT_NOT_DIRECTORY" retry(false) ran(Nothing)
        "A write root is a file, FIFO, socket or device.",
        "Grant the directory that holds it.";
    RootNotAccessible "ERR_BAILIWICK_ROOT_NOT_ACCESSIBLE" retry(false) ran(Nothing)
        "The user of this process cannot reach a write root, or cannot write there.",
        "Grant a directory that this user may enter and write, or change its owner or mode.";
    RootForbidden "ERR_BAILIWICK_ROOT_FORBIDDEN" retry(false) ran(Nothing)
        "A write root is `/`, lies in `/dev`, or lies on a file system through which the kernel is controlled.",
        "Grant the directories that commands need to write, below it.";
    RootOverlap "ERR_BAILIWICK_ROOT_OVERLAP" retry(false) ran(Nothing)
        "A write root and a protected object are the same, one lies inside the other, or the root reaches it under another name: through a mount, a layer of an overlay, or a hard link.",
        "Choose roots that neither hold the protected object nor lie in it, take the other name away, or move the protected object.";
    RootUnprovable "ERR_BAILIWICK_ROOT_UNPROVABLE" retry(false) ran(Nothing)
        "It cannot be proved that a write root does not reach a protected object: the file system, a layer of an overlay or a mount cannot be looked at.",
        "Keep the protected object on a local file system that no overlay is made of, or follow the hint, which names what could not be looked at.";
    RootNotEnforceable "ERR_BAILIWICK_ROOT_NOT_ENFORCEABLE" retry(false) ran(Nothing)
        "A write root was granted, and yet the kernel refuses every write in it from inside: its file system shows another object for each lookup.",
        "Keep the root on a local file system, or mount it with caching; the type of the file system is in the fields.";
    LinkSearchStopped "ERR_BAILIWICK_LINK_SEARCH_STOPPED" retry(false) ran(Nothing)
        "A protected file has more than one name, and the search for the others in a write root was stopped by a limit, or could not look everywhere.",
        "Give the protected file one name, grant smaller roots, or raise the limits of the search.";
    RootIdentityChanged "ERR_BAILIWICK_ROOT_IDENTITY_CHANGED" retry(true) ran(Nothing)
        "The path of a write root names another directory than the one that was granted.",
        "Find out who replaced it; grant the roots again if the new directory is the one you mean.";
    RootMissing "ERR_BAILIWICK_ROOT_MISSING" retry(false) ran(Nothing)
        "A write root that was granted is no longer at its path.",
        "Make the directory again and grant the roots again.";
    RootThroughMagicLink "ERR_BAILIWICK_ROOT_THROUGH_MAGIC_LINK" retry(false) ran(Nothing)
        "The path of a write root passes through a link of the kernel, such as `/proc/PID/root` or `/dev/fd/N`, which means something else in every process.",
        "Give the path of the directory itself.";
    TooManyRoots "ERR_BAILIWICK_TOO_MANY_ROOTS" retry(false) ran(Nothing)
        "The process has no descriptors left to hold the write roots open.",
        "Raise the limit on open files, or grant a common parent of the roots.";
    ProtectedInvalid "ERR_BAILIWICK_PROTECTED_INVALID" retry(false) ran(Nothing)
        "A path to protect is not an absolute path of a directory or file.",
        "Give the absolute path of the object itself.";
    ProtectedNotFound "ERR_BAILIWICK_PROTECTED_NOT_FOUND" retry(false) ran(Nothing)
        "A path to protect does not exist.",
        "Make the object first, or leave the path out.";
    ProtectedNotAccessible "ERR_BAILIWICK_PROTECTED_NOT_ACCESSIBLE" retry(false) ran(Nothing)
        "It cannot be told where an object to protect lies.",
        "Let this user enter the directories above it.";
    ReadInvalid "ERR_BAILIWICK_READ_INVALID" retry(false) ran(Nothing)
        "A directory that commands may read, or take programs from, is not the canonical path of an existing directory that this user can reach.",
        "Give the canonical path; it is in the fields where there is one.";
    ReadOverlap "ERR_BAILIWICK_READ_OVERLAP" retry(false) ran(Nothing)
        "A directory or file that commands may read, or take programs from, holds something private or lies in it, perhaps under another name.",
        "Choose directories apart from the store and from what is protected.";
    ReadForbidden "ERR_BAILIWICK_READ_FORBIDDEN" retry(false) ran(Nothing)
        "A directory or file that commands may read is `/`, holds or is `/proc`, `/sys` or `/dev`, lies in one of them, or is no regular file.",
        "Name the directories that commands need; plain devices work without, and of `/proc` the names can be listed.";
    ReadChanged "ERR_BAILIWICK_READ_CHANGED" retry(true) ran(Nothing)
        "A directory that commands may read is no longer at its path, or the path names another one than was granted.",
        "Put it back, or replace the write roots, which grants what may be read again too.";
    EnvInvalid "ERR_BAILIWICK_ENV_INVALID" retry(false) ran(Nothing)
        "A variable of the environment has an empty name, a name with `=`, or a NUL byte.",
        "Leave the variable out or change it; its index and name are in the fields, its value is never shown.";
    LimitInvalid "ERR_BAILIWICK_LIMIT_INVALID" retry(false) ran(Nothing)
        "A resource limit is named twice, has a soft value above its hard value, permits memory images, or leaves less than a session needs for itself.",
        "Give each resource once, soft value at most the hard value; the message says what else.";
    LimitNotKept "ERR_BAILIWICK_LIMIT_NOT_KEPT" retry(false) ran(Nothing)
        "The kernel does not let commands have a resource limit, or shows another one inside the confinement than was set.",
        "Ask for at most the hard limit of the host process; resource, values and the kernel's answer are in the fields.";
    SessionLimitUnavailable "ERR_BAILIWICK_SESSION_LIMIT_UNAVAILABLE" retry(false) ran(Nothing)
        "This host cannot limit the memory or the processes of a whole session: no control group can be had for it.",
        "Give this process a control group with the controllers that the fields name, or accept by name that the limit is not kept.";
    RootCapabilitiesUnavailable "ERR_BAILIWICK_ROOT_CAPABILITIES_UNAVAILABLE" retry(false) ran(Nothing)
        "Commands cannot keep root's powers over files here: the host process is not root, or there is no mount view that keeps them inside the roots.",
        "Keep none of them, and grant directories of the user of the host process.";
    CommandInvalid "ERR_BAILIWICK_COMMAND_INVALID" retry(false) ran(Nothing)
        "The program of a command is empty, an argument holds a NUL byte, or a directory was given as a standard stream.",
        "Change the argument at the index in the fields.";
    CommandNotFound "ERR_BAILIWICK_COMMAND_NOT_FOUND" retry(false) ran(Nothing)
        "The program of a command does not exist, nor does it in any directory of the command's `PATH`.",
        "Give the absolute path, or set `PATH` in the environment of the session.";
    CommandNotExecutable "ERR_BAILIWICK_COMMAND_NOT_EXECUTABLE" retry(false) ran(Nothing)
        "The program of a command is no file that this user may execute, or its format is unknown to the kernel.",
        "Set its execute bit, check its interpreter line, or run it through its interpreter.";
    CommandTooLarge "ERR_BAILIWICK_COMMAND_TOO_LARGE" retry(false) ran(Nothing)
        "Arguments and environment of a command are larger than the kernel takes.",
        "Pass the data in a file or through standard input; limit and size are in the fields.";
    CommandStart "ERR_BAILIWICK_COMMAND_START" retry(false) ran(Nothing)
        "A command could not be started at a step before its program ran.",
        "See the step and the kernel's answer in the fields.";
    CwdInvalid "ERR_BAILIWICK_CWD_INVALID" retry(false) ran(Nothing)
        "A working directory is not an absolute path, or passes through a link of the kernel.",
        "Give the absolute path of the directory itself.";
    CwdNotFound "ERR_BAILIWICK_CWD_NOT_FOUND" retry(false) ran(Nothing)
        "A working directory does not exist.",
        "Make the directory first, or choose another one.";
    CwdNotDirectory "ERR_BAILIWICK_CWD_NOT_DIRECTORY" retry(false) ran(Nothing)
        "A working directory is no directory.",
        "Choose the directory that holds it.";
    CwdNotAccessible "ERR_BAILIWICK_CWD_NOT_ACCESSIBLE" retry(false) ran(Nothing)
        "The user of this process cannot enter a working directory.",
        "Choose a directory that this user may enter.";
    ProtectionUnavailable "ERR_BAILIWICK_PROTECTION_UNAVAILABLE" retry(false) ran(Nothing)
        "This host cannot keep a protection that the policy requires.",
        "Run where it can be kept, or accept the gap by the name that is in the fields.";
    PlatformUnsupported "ERR_BAILIWICK_PLATFORM_UNSUPPORTED" retry(false) ran(Nothing)
        "This kernel, or the container around this process, lacks something without which nothing can be checked.",
        "Run on the kernel release that the error names, or let the container permit the call.";
    WorkerStart "ERR_BAILIWICK_WORKER_START" retry(false) ran(Nothing)
        "The worker process could not be started.",
        "See the kernel's answer; limits on processes and memory are the usual cause.";
    WorkerLost "ERR_BAILIWICK_WORKER_LOST" retry(false) ran(Unknown)
        "The worker process ended by itself; its commands were ended with it.",
        "Open a new session.";
    WorkerProtocol "ERR_BAILIWICK_WORKER_PROTOCOL" retry(false) ran(Unknown)
        "The worker said something that the protocol does not have.",
        "Report it: session and worker are built from one source.";
    GrantFailed "ERR_BAILIWICK_GRANT_FAILED" retry(false) ran(Nothing)
        "The worker could not confine itself to a grant; an earlier grant stays in force.",
        "See the step and the kernel's answer in the fields.";
    SettlementUnknown "ERR_BAILIWICK_SETTLEMENT_UNKNOWN" retry(true) ran(Something)
        "It could not be established whether every process of the session has ended.",
        "Treat them as alive; close again.";
    NotSettled "ERR_BAILIWICK_NOT_SETTLED" retry(true) ran(Something)
        "Processes of the session were still there at the deadline.",
        "See the list in the fields; close again once what holds them in the kernel has let go.";
    SessionClosed "ERR_BAILIWICK_SESSION_CLOSED" retry(false) ran(Nothing)
        "The session takes no more calls: it is closing or closed.",
        "Open a new session.";
    SessionBusy "ERR_BAILIWICK_SESSION_BUSY" retry(true) ran(Nothing)
        "Commands still run under the grant that was to be replaced.",
        "Wait for the commands in the fields, end them, or say that replacing may do so.";
    StoreInvalid "ERR_BAILIWICK_STORE_INVALID" retry(false) ran(Nothing)
        "The store is not a private directory of this user, or something in it is not what bailiwick puts there.",
        "Choose another directory, or give this one to this user alone.";
    StoreLocked "ERR_BAILIWICK_STORE_LOCKED" retry(true) ran(Nothing)
        "Another session holds the store.",
        "Close that session or choose another store; the holder's process id is in the fields.";
    StoreNotAccessible "ERR_BAILIWICK_STORE_NOT_ACCESSIBLE" retry(false) ran(Nothing)
        "The store cannot be reached, made or written.",
        "Make its parent directory, or choose a place that this user may write.";
    TempDir "ERR_BAILIWICK_TEMP_DIR" retry(false) ran(Nothing)
        "The private temporary directory of the session could not be made or removed.",
        "See the path and the kernel's answer.";
    TreePathInvalid "ERR_BAILIWICK_TREE_PATH_INVALID" retry(false) ran(Nothing)
        "A path into a tree is absolute, climbs with `..`, holds a NUL byte, or has a name longer than the file system takes; or the path of a tree to be pinned is not absolute.",
        "Give the path of an entry relative to the tree, and that of a tree in full.";
    TreeNotFound "ERR_BAILIWICK_TREE_NOT_FOUND" retry(false) ran(Nothing)
        "Nothing is at a path in a tree; the directories above it were looked at and are there.",
        "Correct the path, or see whether the command that was to make it has run.";
    TreeRefused "ERR_BAILIWICK_TREE_REFUSED" retry(false) ran(Nothing)
        "At a path in a tree is something that is not read or entered: a symbolic link, FIFO, socket, device or mount point, a protected object, or another type than was asked for.",
        "See the component and the fact in the fields, and leave the entry out; a command may have put it there.";
    TreeChanged "ERR_BAILIWICK_TREE_CHANGED" retry(true) ran(Nothing)
        "Something in a tree was written, replaced or removed while it was read, or the tree is no longer at its path.",
        "Begin again once nothing writes there, such as after the session has been closed.";
    TreeLimit "ERR_BAILIWICK_TREE_LIMIT" retry(false) ran(Nothing)
        "A tree, or a file in it, is larger or deeper, or takes longer, than the limits of the call allow.",
        "Raise the limit that the fields name, or leave the entry out.";
    TreeNotAccessible "ERR_BAILIWICK_TREE_NOT_ACCESSIBLE" retry(false) ran(Nothing)
        "The kernel does not let this user open, list or read something in a tree.",
        "See the call and the kernel's answer; owner and mode are what mostly keeps it.";
    TreeNotRemoved "ERR_BAILIWICK_TREE_NOT_REMOVED" retry(false) ran(Nothing)
        "Something is left of a tree that was to be removed; everything else in it is gone.",
        "See the list and the reasons in the fields, take away what keeps each of them, and remove again.";
    OutcomeUnknown "ERR_BAILIWICK_OUTCOME_UNKNOWN" retry(false) ran(Unknown)
        "A command has ended, but how was lost: a command of the same session killed the process that watched it.",
        "Treat it as having run; look at what it was to make before running it again.";
    Io "ERR_BAILIWICK_IO" retry(false) ran(Unknown)
        "The kernel refused an operation that has no code of its own.",
        "See the operation and the kernel's answer.";
    Internal "ERR_BAILIWICK_INTERNAL" retry(false) ran(Unknown)
        "Something that cannot happen did: a bug in bailiwick.",
        "Report it with the whole error.";
}

/// The text of `docs/error-codes.md`.
#[must_use]
pub fn codes_document() -> String {
    let mut text = String::from(
        "# Error codes\n\n\
         Made from the table in `crates/bailiwick/src/error/kind.rs`; change that and run the tests with\n\
         `BAILIWICK_TEST_BLESS=1`. \"Retry\" says whether the same call may succeed later with nothing changed.\n\
         \"Ran\" says whether the failed call had started a command. Both are the usual answer of the kind; an\n\
         error carries its own.\n\n\
         | Code | Meaning | What helps | Retry | Ran |\n\
         |---|---|---|---|---|\n",
    );
    for kind in ErrorKind::ALL {
        let retry = if kind.can_retry() { "yes" } else { "no" };
        text.push_str(&format!(
            "| `{}` | {} | {} | {retry} | {} |\n",
            kind.code(),
            kind.meaning(),
            kind.remedy(),
            kind.ran().name(),
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_names_of_the_kinds() {
        for kind in ErrorKind::ALL {
            let mut expected = String::from("ERR_BAILIWICK");
            for character in format!("{kind:?}").chars() {
                if character.is_ascii_uppercase() {
                    expected.push('_');
                }
                expected.push(character.to_ascii_uppercase());
            }
            assert_eq!(kind.code(), expected);
        }
    }

    #[test]
    fn every_row_is_one_sentence_each_and_fits_a_table() {
        for kind in ErrorKind::ALL {
            for text in [kind.meaning(), kind.remedy()] {
                assert!(text.ends_with('.') && !text.contains(". "), "{kind:?}: {text}");
                assert!(!text.contains('|') && !text.contains('\n'), "{kind:?}: {text}");
                assert!(!text.contains("--"), "{kind:?} names a command-line flag: {text}");
            }
        }
    }

    #[test]
    fn the_document_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/error-codes.md");
        if std::env::var_os("BAILIWICK_TEST_BLESS").is_some() {
            std::fs::write(path, codes_document()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap();
        assert!(
            committed == codes_document(),
            "docs/error-codes.md differs: run this test with BAILIWICK_TEST_BLESS=1"
        );
    }
}
