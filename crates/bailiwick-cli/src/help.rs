//! Texts of `--help`, and what is said about arguments that do not follow the grammar.

use std::io::IsTerminal as _;
use std::os::unix::ffi::OsStrExt as _;

use bailiwick::{Protection, Resource};

use crate::FAILED;
use crate::failure::{Code, Failure};
use crate::render;
use crate::status::{Report, Status};

pub(crate) const ABOUT: &str = "\
Run a command that the kernel confines to the directories you name.

The command, and whatever it starts, reads what you may read, unless you limit that. It writes below the write roots, in a private \
temporary directory, and nowhere else; it has no network unless you allow it. When it has ended, whatever it left \
running is ended too. What this host cannot keep is named, and refuses the run unless you accept it by name.";

pub(crate) const AFTER: &str = "\
Examples:
  bailiwick doctor
  bailiwick explain --write-root \"$PWD\"
  bailiwick run --write-root \"$PWD\" \\
    --accept metadata --accept named-sockets -- make test

Start with `doctor`: it shows which gaps there are on this host and how to accept them.";

pub(crate) const RUN: &str = "\
Run one command in a session of its own, and end all that it leaves running.

The exit status is that of the command.";

pub(crate) const EXPLAIN: &str = "\
Tell whether these write roots would be granted, and why not.

Each write root is shown with everything it was compared with and the fact that decided. Nothing is made and nothing \
runs. What the host can keep is not asked here: that is `bailiwick doctor`.";

pub(crate) const AFTER_EXPLAIN: &str = "\
Exit status:
  0    all of them would be granted
  125  something would be refused, or the question could not be answered

Example:
  bailiwick explain --write-root /srv/job --protect /srv/job/.git";

pub(crate) const DOCTOR: &str = "\
Find out which protections this host can keep.

A real session is opened and thrown away. In it the worker tries every forbidden act, and a protection counts as kept \
only if the kernel refused. Kernel release and Landlock version are shown for information; nothing is decided by them.";

pub(crate) const AFTER_DOCTOR: &str = "\
Exit status:
  0    everything that this version of bailiwick can keep anywhere is kept here
  1    something is not kept here that another host would keep
  125  it could not be found out";

/// The end of `bailiwick run --help`.
pub(crate) fn after_run() -> String {
    // Not wider than 80 columns: wrapping would break the tables.
    let (first, second) = crate::environment::HANDED_ON.split_at(5);
    format!(
        "\
What the command gets:
  files        Reads what you may read. Writes below the write roots, in TMPDIR
               (private, removed at the end), and to /dev/null, /dev/zero,
               /dev/full, /dev/random and /dev/urandom.
  stdin        Yours when it is a pipe or a file. When it is a terminal, end of
               file: whoever holds a terminal can control it.
  stdout,      Pipes, from which bailiwick passes on every byte. The command
  stderr       never holds your terminal or files, and sees no terminal.
  environment  {}
               {}
               and LC_*, if set, and what --env says. HOME not where reading is
               limited. TMPDIR, TMP, TEMP and PWD are the session's.
  descriptors  None but these three.
  processes    Its own. It cannot signal or trace others, and none of its own
               is left when bailiwick ends.

What is not protected:
  Reading      The command may read what you may read, and tell it to the
               network if you allow that. With --read-root it reads only
               that, the write roots, and what every tool needs.
  The roots    Below the write roots it may do what it likes, to history and
               configuration that lie there too.
  Gaps         What you --accept. On every host of this version these are
               metadata (mode, owner and times of files outside the roots) and
               named-sockets (a daemon that listens on one may act for it).

Exit status:
  N            The command's own status.
  128+N        Signal N ended the command, or asked bailiwick itself to end
               (1 HUP, 2 INT, 15 TERM).
  125          Bailiwick refused or failed; standard error says why. A command
               may end with 125 too: with --json-status, `outcome` tells which,
               and `exit_code` is there only if the command ran.

Examples:
  Tests that may write in the working directory:
    bailiwick run --write-root \"$PWD\" \\
      --accept metadata --accept named-sockets -- make test

  Nothing may be written, for at most 10 seconds:
    bailiwick run --timeout 10 \\
      --accept metadata --accept named-sockets -- ./analyse input.txt

  A program is told how it went:
    bailiwick run --json-status 3 \\
      --accept metadata --accept named-sockets -- ./job 3>outcome.json",
        first.join(" "),
        second.join(" ")
    )
}

/// Help of `--accept`.
pub(crate) fn accept() -> String {
    let mut text = String::from(
        "Run though this protection is not kept; may be given again\n\n\
         Every protection is required unless it is accepted here by its name. Two of them also close what some \
         programs need, and accepting them opens it: `terminals` (the command may open terminals) and \
         `shared-memory` (System V IPC). The names:\n",
    );
    for protection in Protection::ALL {
        text.push_str(&format!("\n- {}: {}", protection.name(), protection.promise()));
    }
    text.push_str("\n- memory-max, processes-max: The limit of that name is kept.");
    text
}

/// Help of `--limit`.
pub(crate) fn limit() -> String {
    let names: Vec<&str> = Resource::ALL.iter().map(|resource| resource.name()).collect();
    format!(
        "Limit a resource of each process of the command; may be given again\n\nN is a whole number in the unit of \
         setrlimit(2), or `unlimited`. The names: {}",
        names.join(", ")
    )
}

/// Shows help, or says what is wrong with the arguments. The exit status.
pub(crate) fn show(error: &clap::Error) -> u8 {
    let colour = |terminal: bool| terminal && std::env::var_os("NO_COLOR").is_none();
    let text = |coloured: bool| {
        let text = error.render();
        if coloured { text.ansi().to_string() } else { text.to_string() }
    };
    if !error.use_stderr() {
        return match render::out(&text(colour(std::io::stdout().is_terminal()))) {
            Ok(()) => 0,
            Err(failure) => {
                render::failure(&failure);
                FAILED
            }
        };
    }
    let stderr = std::io::stderr();
    let told = format!(
        "{}code: {}; {}\n",
        text(colour(stderr.is_terminal())),
        Code::Usage.code(),
        bailiwick::Ran::Nothing
    );
    render::write_all(stderr, told.as_bytes()).ok();
    // Whoever asked for a status line waits for one, whatever else is wrong with the arguments.
    if let Some(mut status) = asked_for_status() {
        let plain = text(false);
        let message = plain.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        status.tell(&Report::refused(Failure::new(Code::Usage, message).hint("see `bailiwick run --help`")));
    }
    FAILED
}

/// The descriptor of `--json-status`, found without the grammar.
fn asked_for_status() -> Option<Status> {
    const NAME: &[u8] = b"--json-status";
    let mut args = std::env::args_os().skip(1);
    if args.next()? != "run" {
        return None;
    }
    while let Some(arg) = args.next() {
        let bytes = arg.as_bytes();
        if bytes == b"--" {
            return None;
        }
        let value = match bytes.strip_prefix(NAME) {
            Some([]) => args.next()?,
            Some([b'=', value @ ..]) => std::ffi::OsStr::from_bytes(value).to_owned(),
            _ => continue,
        };
        return Status::take(&value).ok();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_not_wrapped() {
        let run = after_run();
        for text in [&run, AFTER, AFTER_EXPLAIN, AFTER_DOCTOR] {
            let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
            assert!(wide.iter().all(|line| !line.starts_with(' ')), "{wide:?}");
        }
        for name in crate::environment::HANDED_ON {
            assert!(run.contains(name));
        }
    }
}
