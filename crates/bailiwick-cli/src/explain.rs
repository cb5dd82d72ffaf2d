//! `bailiwick explain`: the guard's answer, in full.

use std::path::PathBuf;

use bailiwick::Error;
use bailiwick::guard::{
    Comparison, Decision, Fact, ReadDecision, ReadVerdict, Relation, RootVerdict, Verdict,
};
use serde_json::{Value, json};

use crate::FAILED;
use crate::args::ExplainArgs;
use crate::failure::Failure;
use crate::policy::Asked;
use crate::render::{self, Colour, quoted};
use crate::state_dir;

/// Answers the question. The exit status.
pub(crate) fn explain(args: &ExplainArgs) -> u8 {
    let verdict = ask(args);
    let granted = verdict.as_ref().is_ok_and(|verdict| verdict.granted);
    let told = if args.json {
        render::json(&document(&verdict))
    } else {
        match &verdict {
            Ok(verdict) => render::out(&text(verdict, Colour::of_stdout())),
            Err(failure) => {
                render::failure(failure);
                Ok(())
            }
        }
    };
    match told {
        Ok(()) if granted => 0,
        Ok(()) => FAILED,
        Err(failure) => {
            render::failure(&failure);
            FAILED
        }
    }
}

fn ask(args: &ExplainArgs) -> Result<Verdict, Failure> {
    let asked = Asked::read(&args.policy)?;
    let store = match &args.policy.store {
        Some(store) => PathBuf::from(store),
        None => state_dir::would_be()?,
    };
    Ok(asked.builder(&store).explain()?)
}

/// The refusal that opening a session would give.
pub(crate) fn first_refusal(verdict: Verdict) -> Option<Error> {
    verdict.into_refusals().next()
}

/// The verdict in the library's form, with the hints of this program in its refusals. Of one shape, also when the
/// question could not be answered.
fn document(verdict: &Result<Verdict, Failure>) -> Value {
    let failures = |errors: &[Error]| errors.iter().map(Failure::from).collect::<Vec<_>>();
    match verdict {
        Err(failure) => {
            json!({ "granted": false, "roots": [], "reads": null, "refusals": [failure], "notes": [] })
        }
        Ok(verdict) => {
            let mut document = json!(verdict);
            document["refusals"] = json!(failures(&verdict.refusals));
            for (index, root) in verdict.roots.iter().enumerate() {
                document["roots"][index]["refusals"] = json!(failures(&root.refusals));
            }
            for (index, read) in verdict.reads.iter().flatten().enumerate() {
                document["reads"][index]["refusals"] = json!(failures(&read.refusals));
            }
            document
        }
    }
}

fn text(verdict: &Verdict, colour: Colour) -> String {
    let mut lines = Vec::new();
    if verdict.roots.is_empty() {
        lines.push("no write roots: the command could write in its temporary directory only".to_owned());
    }
    for root in &verdict.roots {
        root_lines(root, colour, &mut lines);
    }
    match &verdict.reads {
        None => lines.push("reads: what you may read".to_owned()),
        Some(reads) => read_lines(reads, colour, &mut lines),
    }
    for refusal in &verdict.refusals {
        lines.push(Failure::from(refusal).to_string());
    }
    for note in &verdict.notes {
        lines.push(format!("note: {note}"));
    }
    lines.push(String::new());
    lines.push(if verdict.granted {
        format!(
            "{}: nothing stands against these write roots; `bailiwick doctor` tells what this host keeps",
            colour.good("would be granted")
        )
    } else {
        format!("{}: see above; nothing was made and nothing ran", colour.bad("would be refused"))
    });
    lines.join("\n") + "\n"
}

fn root_lines(root: &RootVerdict, colour: Colour, lines: &mut Vec<String>) {
    let decision = match root.decision {
        Decision::Granted => colour.good("granted"),
        Decision::Covered(by) => format!("{}, as part of write root {by}", colour.good("granted")),
        Decision::Refused => colour.bad("refused"),
    };
    lines.push(format!("write root {} {}: {decision}", root.index, quoted(&root.given)));
    if let (Some(canonical), Some(id)) = (&root.canonical, &root.object) {
        lines.push(format!(
            "  is {}: inode {} on device {}:{}",
            quoted(canonical),
            id.inode,
            id.device_major,
            id.device_minor
        ));
    }
    lines.extend(root.comparisons.iter().map(|comparison| format!("  {}", compared(comparison))));
    refusal_lines(&root.refusals, lines);
}

/// What the command could read. Of the base set, what this host has of it, in one paragraph.
fn read_lines(reads: &[ReadVerdict], colour: Colour, lines: &mut Vec<String>) {
    lines.push("reads: the write roots, its temporary directory, and".to_owned());
    let (base, named): (Vec<_>, Vec<_>) = reads.iter().partition(|read| read.purpose == "base");
    for read in named {
        let decision = match read.decision {
            ReadDecision::Readable => colour.good("readable"),
            ReadDecision::Absent => colour.doubtful("absent"),
            ReadDecision::Refused => colour.bad("refused"),
        };
        let what = if read.purpose == "programs" { "directory of programs" } else { "read root" };
        lines.push(format!("  {what} {} {}: {decision}", read.index, quoted(&read.given)));
        refusal_lines(&read.refusals, lines);
    }
    let mut present: Vec<String> = Vec::new();
    for read in base {
        match read.decision {
            ReadDecision::Readable => present.push(quoted(&read.given).to_string()),
            ReadDecision::Absent => {}
            ReadDecision::Refused => {
                lines.push(format!("  of the base set, {}: {}", quoted(&read.given), colour.bad("refused")));
                refusal_lines(&read.refusals, lines);
            }
        }
    }
    lines.push(match present.is_empty() {
        true => "  of the base set, nothing".to_owned(),
        false => format!("  of the base set, what is here: {}", present.join(", ")),
    });
}

fn refusal_lines(refusals: &[Error], lines: &mut Vec<String>) {
    for refusal in refusals {
        lines.extend(Failure::from(refusal).to_string().lines().map(|line| format!("  {line}")));
    }
}

/// One comparison and the fact that decided it.
fn compared(comparison: &Comparison) -> String {
    let protected = format!("{} ({})", quoted(&comparison.protected), comparison.protected_kind.name());
    let relation = match comparison.relation {
        None => "apart from",
        Some(Relation::Same) => "the same as",
        Some(Relation::Inside) => "inside",
        Some(Relation::Around) => "around",
        Some(Relation::Alias) => "reaches, under another name,",
        Some(other) => other.name(),
    };
    let fact = match &comparison.fact {
        Fact::Meet(meeting) => format!(
            "they meet in inode {} on device {}, {} above the inner one",
            meeting.inode,
            meeting.device,
            counted(meeting.levels)
        ),
        Fact::Seen { alias, name, mount_point, lies, meeting } => {
            let through = match mount_point {
                Some(point) => format!(" through the mount at {}", quoted(point)),
                None => String::new(),
            };
            format!(
                "it is seen at {}{through} ({}), and this root is {} that: they meet in inode {} on device {}",
                quoted(name),
                alias.name(),
                match lies {
                    Relation::Same => "the same as",
                    Relation::Inside => "inside",
                    _ => "around",
                },
                meeting.inode,
                meeting.device
            )
        }
        Fact::Linked { file, links, device, inode } => format!(
            "{} has {links} names, and some of them lie in this root (inode {inode} on device {device})",
            quoted(file)
        ),
        Fact::Unproven { why } => format!("it cannot be told, because {why}"),
        Fact::Apart { above_root, above_protected } => format!(
            "it is none of the {} above this root, this root is none of the {} above it, and it has no other name here",
            counted(*above_root),
            counted(*above_protected)
        ),
    };
    let relation =
        if matches!(comparison.fact, Fact::Unproven { .. }) { "perhaps reaches" } else { relation };
    let mut line = format!("{relation} {protected}: {fact}");
    for name in &comparison.other_names {
        line.push_str(&format!("\n    other name: {}", quoted(name)));
    }
    line
}

fn counted(directories: usize) -> String {
    match directories {
        1 => "1 directory".to_owned(),
        count => format!("{count} directories"),
    }
}
