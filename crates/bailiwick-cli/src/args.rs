//! The grammar, and nothing of what it means. Values that deserve an error of their own are taken as they come and
//! understood elsewhere.

use std::ffi::OsString;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use crate::help;

// Headings of options that are not of the policy.
const COMMAND: &str = "Command";
const REPORT: &str = "What is told";

#[derive(Debug, Parser)]
#[command(
    name = "bailiwick",
    version,
    about = "Run a command that the kernel confines to the directories you name",
    long_about = help::ABOUT,
    after_long_help = help::AFTER,
    subcommand_required = true,
    arg_required_else_help = true,
)]
pub(crate) struct Line {
    #[command(subcommand)]
    pub(crate) action: Action,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Run one command in a session of its own, and end all that it leaves running
    #[command(long_about = help::RUN, after_long_help = help::after_run())]
    Run(Box<RunArgs>),
    /// Tell whether write roots would be granted, and why not; nothing is made, nothing runs
    #[command(long_about = help::EXPLAIN, after_long_help = help::AFTER_EXPLAIN)]
    Explain(Box<ExplainArgs>),
    /// Find out, by trying, which protections this host can keep
    #[command(long_about = help::DOCTOR, after_long_help = help::AFTER_DOCTOR)]
    Doctor(DoctorArgs),
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Policy")]
pub(crate) struct PolicyArgs {
    /// Keep the session's history in this directory, and leave it there
    ///
    /// An absolute path whose parent exists; made if it is absent, private to you, outside of every write root.
    /// Without it the history goes to a fresh directory below $XDG_STATE_HOME (or ~/.local/state), in
    /// `bailiwick/sessions`, which is removed at the end.
    #[arg(long, value_name = "D")]
    pub(crate) store: Option<OsString>,

    /// Let the command write below this directory; may be given again
    ///
    /// An absolute path of an existing directory. Without any, the command can write in its TMPDIR only.
    #[arg(long, value_name = "D", action = ArgAction::Append)]
    pub(crate) write_root: Vec<OsString>,

    /// Let the command read below this directory, and limit what it reads; may be given again
    ///
    /// The canonical path of an existing directory. Without this and the two that follow, the command reads what you may
    /// read. With one of them, it reads nothing else but the write roots, its TMPDIR and the base set.
    #[arg(long, value_name = "D", action = ArgAction::Append)]
    pub(crate) read_root: Vec<OsString>,

    /// As --read-root, for a directory from which the command takes programs; may be given again
    ///
    /// Directories of PATH that lie outside of the base set are not read unless they are named.
    #[arg(long, value_name = "D", action = ArgAction::Append)]
    pub(crate) program_dir: Vec<OsString>,

    /// Read this directory or file in place of the base set; may be given again
    ///
    /// `default` stands for the base set: /usr with what is linked into it, and the part of /etc that ordinary tools
    /// need. `bailiwick explain --read-base default` lists it.
    #[arg(long, value_name = "P", action = ArgAction::Append)]
    pub(crate) read_base: Vec<OsString>,

    /// Refuse every write root that reaches this directory or file; may be given again
    ///
    /// The store and the bailiwick program itself are protected always.
    #[arg(long, value_name = "P", action = ArgAction::Append)]
    pub(crate) protect: Vec<OsString>,

    /// As --protect, for a SQLite database with the files beside it; may be given again
    ///
    /// The names with -wal, -shm and -journal at their end are meant too, present or not, and the links that lead
    /// to the database.
    #[arg(long, value_name = "F", action = ArgAction::Append)]
    pub(crate) protect_database: Vec<OsString>,

    /// Whether the command may use the network
    #[arg(long, value_name = "WORD", value_enum, default_value = "deny")]
    pub(crate) network: NetworkWord,

    /// Set a variable (K=V), or hand on your own (K); may be given again
    ///
    /// TMPDIR, TMP and TEMP are the session's and cannot be set.
    #[arg(long, value_name = "K[=V]", action = ArgAction::Append)]
    pub(crate) env: Vec<OsString>,

    /// Run though this protection is not kept; may be given again
    #[arg(long, value_name = "GAP", action = ArgAction::Append, long_help = help::accept())]
    pub(crate) accept: Vec<OsString>,

    /// Limit a resource of each process of the command; may be given again
    #[arg(long, value_name = "NAME=N", action = ArgAction::Append, long_help = help::limit())]
    pub(crate) limit: Vec<OsString>,

    /// Limit the memory of the command and all that it starts together, in bytes
    ///
    /// Kept by a control group (cgroup v2) that is made for the run; where none can be had, the run is refused with the
    /// cause. `--accept memory-max` runs without it.
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory_max: Option<OsString>,

    /// Limit how many processes and threads there are at a time, bailiwick's own few among them; binds root too
    ///
    /// Kept as --memory-max is; `--accept processes-max` runs without it.
    #[arg(long, value_name = "N")]
    pub(crate) processes_max: Option<OsString>,

    /// Make the control group below this one, a directory of cgroup v2; by default below bailiwick's own
    #[arg(long, value_name = "D")]
    pub(crate) group_parent: Option<OsString>,

    /// What the command keeps of root's powers, if bailiwick is run by root
    #[arg(long, value_name = "WORD", value_enum, default_value = "none")]
    pub(crate) root_capabilities: CapabilitiesWord,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CapabilitiesWord {
    /// Nothing
    None,
    /// To change owners, and to ignore owners and modes; needs a mount view, which keeps that inside the roots
    Files,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NetworkWord {
    /// None, not even to ports of this machine
    Deny,
    /// Ports that commands of this session open themselves, and no others
    Loopback,
    /// All of it; a daemon on this machine may then act for the command
    Allow,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,

    /// Start the command in this directory; being there permits nothing
    ///
    /// An absolute path. By default the command starts where bailiwick did.
    #[arg(long, value_name = "D", help_heading = COMMAND)]
    pub(crate) current_dir: Option<OsString>,

    /// End the command and all that it started after this time; fractions are allowed
    #[arg(long, value_name = "SECONDS", help_heading = COMMAND, allow_negative_numbers = true)]
    pub(crate) timeout: Option<OsString>,

    /// Write one line of JSON about the outcome to this descriptor
    ///
    /// The number of a descriptor above 2 that is open for writing, as in `--json-status 3 ... 3>FILE`. The
    /// command does not get it.
    #[arg(long, value_name = "FD", help_heading = REPORT, allow_negative_numbers = true)]
    pub(crate) json_status: Option<OsString>,

    /// Say nothing of accepted gaps and of processes that had to be ended; errors are told all the same
    #[arg(long, short, help_heading = REPORT)]
    pub(crate) quiet: bool,

    /// The command and its arguments, after `--`
    #[arg(value_name = "CMD", help_heading = COMMAND, last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,

    /// Answer in one line of JSON
    #[arg(long, help_heading = REPORT)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Answer in one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_grammar_is_sound() {
        Line::command().debug_assert();
    }

    #[test]
    fn everything_after_the_dashes_is_the_command() {
        let line = Line::try_parse_from(["bailiwick", "run", "--", "prog", "--store", "--", "-x"]).unwrap();
        let Action::Run(run) = line.action else { panic!("{line:?}") };
        assert_eq!(run.command, ["prog", "--store", "--", "-x"]);
        assert!(run.policy.store.is_none());
        Line::try_parse_from(["bailiwick", "run", "prog"]).unwrap_err();
    }
}
